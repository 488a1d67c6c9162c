package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/tidemarkdb/tidemark/fault"
)

// socketURL is the address of a node's WebSocket.
func socketURL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fault.New(fault.InvalidClause, "the URL of the node does not parse: %w", err)
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return "", fault.New(fault.InvalidClause, "the URL of a node is ws://host:port or wss://host:port, not %s", u.Redacted())
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws"
	}
	return u.String(), nil
}

// maxRefusalBytes bounds what is read of a refusal.
const maxRefusalBytes = 64 << 10

// refusal is the error of a node that did not open the session.
func refusal(address string, response *http.Response, cause error) error {
	if response == nil || response.Body == nil {
		return fault.New(fault.Unavailable, "no node answers at %s: %w", address, cause)
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
	return fault.New(fault.Unavailable, "the node at %s refused the session (%s): %w", address, response.Status, cause)
}
