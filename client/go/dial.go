package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tidemarkdb/tidemark/fault"
)

// handshake is the address of a node's WebSocket and the headers that open a
// session there.
func handshake(address string, options Options) (socket string, header http.Header, err error) {
	u, err := url.Parse(address)
	if err != nil {
		// What does not parse is not shown: it may hold a password.
		return "", nil, fault.New(fault.InvalidClause, "the URL of the node does not parse; it is ws://host:port or wss://host:port")
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return "", nil, fault.New(fault.InvalidClause, "the URL of a node is ws://host:port or wss://host:port, not %s", u.Redacted())
	}
	if strings.Contains(u.Host, ",") {
		return "", nil, fault.New(fault.InvalidClause, "a session is on one node; give the URL of one, not the list %s", u.Host)
	}
	if u.Host == "" {
		return "", nil, fault.New(fault.InvalidClause, "the URL of a node names no host; it is ws://host:port or wss://host:port")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws"
	}
	user, password := options.User, options.Password
	if user == "" && u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	u.User = nil
	header = http.Header{}
	switch {
	case options.Token != "":
		header.Set("Authorization", "Bearer "+options.Token)
	case user != "":
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	}
	if options.Namespace != "" {
		header.Set("Tidemark-Namespace", options.Namespace)
	}
	if options.Database != "" {
		header.Set("Tidemark-Database", options.Database)
	}
	return u.String(), header, nil
}

// maxRefusalBytes bounds what is read of a refusal.
const maxRefusalBytes = 64 << 10

// refusal is the error of a node that did not open the session.
func refusal(address string, response *http.Response, cause error) error {
	if response == nil || response.Body == nil {
		return fault.New(fault.Unavailable, "no node answers at %s: %w", address, networkCause(cause))
	}
	var answers []struct {
		Error struct {
			Kind    fault.Kind `json:"kind"`
			Message string     `json:"message"`
		} `json:"error"`
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRefusalBytes))
	if err == nil && json.Unmarshal(body, &answers) == nil && len(answers) == 1 && answers[0].Error.Kind != "" {
		return &fault.Error{Kind: answers[0].Error.Kind, Message: answers[0].Error.Message}
	}
	if response.StatusCode == http.StatusBadRequest && strings.Contains(string(body), "HTTP request to an HTTPS server") {
		return fault.New(fault.Unavailable, "the node at %s speaks TLS; its URL begins with wss://", address)
	}
	return fault.New(fault.Unavailable, "the node at %s refused the session (%s): %w", address, response.Status, cause)
}

// networkCause is the part of an error that says what the network said, without
// the layers it came through.
func networkCause(err error) error {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return operation
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errNoAnswer
	}
	return err
}

var errNoAnswer = errors.New("no answer in time")
