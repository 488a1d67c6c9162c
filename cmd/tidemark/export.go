package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/export"
	"github.com/tidemarkdb/tidemark/internal/store"
)

// exportCommand is tidemark export.
type exportCommand struct {
	anySource
	Database string        `required:"" help:"Database to export, as namespace/database." placeholder:"NAME"`
	Format   export.Format `default:"statements" enum:"statements,json" help:"statements: a script that tidemark run takes, with every type. json: an object a line, for other programs."`
	To       string        `arg:"" default:"-" help:"File to make, or - for standard output."`
}

// Help is the manual of the command.
func (exportCommand) Help() string {
	return `Writes a database, as it is at one moment, for people and other programs:
definitions and rows. It is no backup: positions and times of messages are given
anew where it is imported, places of readers and groups are not in it, nor are
headers of messages and users. "tidemark backup" carries all of that.

Examples:

  tidemark export --url ws://127.0.0.1:7420 --database shop/orders orders.tide
  tidemark export --data ./store --database shop/orders --format json | jq .`
}

// Run writes the export.
func (c *exportCommand) Run(s *surroundings) (err error) {
	if c.Data == "" && c.Postgres == "" && c.URL == "" {
		return errors.New("export of what? Name the store: --url, --data or --postgres")
	}
	namespace, database, err := splitDatabase(c.Database)
	if err != nil {
		return err
	}
	if c.To == "-" {
		out := bufio.NewWriter(s.out)
		return errors.Join(c.write(s, namespace, database, out), out.Flush())
	}
	file, err := os.OpenFile(c.To, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	err = errors.Join(c.write(s, namespace, database, out), out.Flush(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(c.To))
	}
	return nil
}

func (c *exportCommand) write(s *surroundings, namespace, database string, out io.Writer) error {
	if c.URL != "" {
		signIn, err := c.signIn(s)
		if err != nil {
			return err
		}
		return fetchExport(s.ctx, c.URL, signIn, namespace, database, c.Format, out)
	}
	e, err := c.openEngine(s.ctx, slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	// No consumers run: an export changes nothing.
	st, err := store.Open(s.ctx, e, store.Options{HousekeepingEvery: -1})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	return errors.Join(export.Write(s.ctx, st, namespace, database, c.Format, out), st.Close())
}

func fetchExport(ctx context.Context, address string, signIn client.Options, namespace, database string, format export.Format, out io.Writer) error {
	response, err := get(ctx, address, signIn, "/export/"+url.PathEscape(namespace)+"/"+url.PathEscape(database), url.Values{"format": {string(format)}})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(out, response.Body); err != nil {
		return fault.New(fault.Unavailable, "the node's export was cut off: %w", err)
	}
	return nil
}

// splitDatabase splits namespace/database.
func splitDatabase(name string) (namespace, database string, err error) {
	namespace, database, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || database == "" {
		return "", "", fmt.Errorf("--database takes namespace/database, not %q", name)
	}
	return namespace, database, nil
}
