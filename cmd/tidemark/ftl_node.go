package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/deploy"
)

// ftlDatabase is where modules are deployed, and who asks.
type ftlDatabase struct {
	Database string `default:"main" help:"Database of the namespace ftl that the modules are deployed in."`
	User     string `env:"TIDEMARK_USER" help:"Owner of the store who signs in, with the password in TIDEMARK_PASSWORD; a token in TIDEMARK_TOKEN signs in instead." placeholder:"NAME"`
}

// ftlNode is the node that a command asks about modules.
type ftlNode struct {
	ftlDatabase
	URL string `name:"url" default:"ws://127.0.0.1:7420" help:"Node to ask: ws://host:port, or wss://host:port." placeholder:"URL"`
}

// overHTTP is the URL of a node over HTTP.
func overHTTP(node string) (*url.URL, error) {
	target, err := url.Parse(node)
	if err != nil || target.Host == "" {
		return nil, fmt.Errorf("a node's URL is written as ws://127.0.0.1:7420, not %q", node)
	}
	switch target.Scheme {
	case "ws", "http":
		target.Scheme = "http"
	case "wss", "https":
		target.Scheme = "https"
	default:
		return nil, fmt.Errorf("a node's URL begins with ws:// or wss://, not %s://", target.Scheme)
	}
	return target, nil
}

// ask sends a request to a node and reads its answer.
func (d *ftlDatabase) ask(ctx context.Context, node, method, path string, request, answer any) error {
	target, err := overHTTP(node)
	if err != nil {
		return err
	}
	target.Path, target.RawQuery = path, url.Values{"database": {d.Database}}.Encode()
	var body io.Reader
	if request != nil {
		encoded, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(encoded)
	}
	asked, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return err
	}
	asked.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("TIDEMARK_TOKEN"); token != "" {
		asked.Header.Set("Authorization", "Bearer "+token)
	} else if d.User != "" {
		asked.SetBasicAuth(d.User, os.Getenv("TIDEMARK_PASSWORD"))
	}
	response, err := http.DefaultClient.Do(asked)
	if err != nil {
		return fault.New(fault.Unavailable, "the node at %s cannot be reached: %w", target.Host, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return refusalOf(response, target.Host)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("the node at %s answers what is no answer: %w", target.Host, err)
	}
	return nil
}

// refusalOf is why a node refused.
func refusalOf(response *http.Response, host string) error {
	const most = 1 << 20
	body, _ := io.ReadAll(io.LimitReader(response.Body, most))
	// The modules answer an error; the node itself, where nobody is let in, an
	// array of answers.
	var refused deploy.ErrorAnswer
	var answers []struct {
		Error deploy.ErrorAnswer `json:"error"`
	}
	switch {
	case json.Unmarshal(body, &refused) == nil && refused.Kind != "":
	case json.Unmarshal(body, &answers) == nil && len(answers) > 0:
		refused = answers[0].Error
	default:
		return fmt.Errorf("the node at %s answers %s", host, response.Status)
	}
	return fault.New(fault.Kind(refused.Kind), "%s", refused.Message)
}

func (n *ftlNode) status(ctx context.Context) (deploy.Status, error) {
	var status deploy.Status
	err := n.ask(ctx, n.URL, http.MethodGet, deploy.PathStatus, nil, &status)
	return status, err
}

func (n *ftlNode) operate(s *surroundings, subscription, do, to string) (int, error) {
	var answer deploy.OperateAnswer
	err := n.ask(s.ctx, n.URL, http.MethodPost, deploy.PathOperate, deploy.OperateRequest{
		Database: n.Database, Subscription: subscription, Do: do, To: to,
	}, &answer)
	return answer.Events, err
}
