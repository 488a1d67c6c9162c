package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	client "github.com/tidemarkdb/tidemark/client/go"
	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/backup"
)

// backupCommand is tidemark backup.
type backupCommand struct {
	anySource
	Quiet bool   `help:"Show no progress."`
	To    string `arg:"" help:"Folder that the backup is put into under its time, a file to make, or - for standard output."`
}

// Help is the manual of the command.
func (backupCommand) Help() string {
	return `Writes all of a store, as it is at one moment, to a file: every database with
positions, places of readers, deadlines, users and all. The store may be written
meanwhile. Of a node (--url) it needs an owner of the store; --data is for a
folder that no other process has open.

The file is whole, or there is none: it gets its name when it was read to its
end. It holds password hashes and keys; keep it as you keep the store.

Examples:

  tidemark backup --url ws://127.0.0.1:7420 /var/backups/tidemark
  tidemark backup --postgres postgres://user@host/db - | zstd > store.backup.zst`
}

// Run takes the backup.
func (c *backupCommand) Run(s *surroundings) error {
	if c.Data == "" && c.Postgres == "" && c.URL == "" {
		return errors.New("backup of what? Name the store: --url, --data or --postgres")
	}
	from, err := c.begin(s)
	if err != nil {
		return err
	}
	if c.To == "-" {
		if isTerminal(s.out) {
			return errors.New("a backup is no text for a terminal; name a file or a folder, or pass it on")
		}
		// Whoever reads it checks it, as restore does.
		return from(s.ctx, s.out)
	}
	path, err := c.path()
	if err != nil {
		return err
	}
	if err := writeWhole(path, func(to io.Writer) error { return from(s.ctx, to) }); err != nil {
		return err
	}
	fmt.Fprintln(s.out, path)
	return nil
}

// begin returns what writes the backup.
func (c *backupCommand) begin(s *surroundings) (func(context.Context, io.Writer) error, error) {
	shown := newProgress(s.errors, "backed up", c.Quiet)
	if c.URL != "" {
		signIn, err := c.signIn(s)
		return func(ctx context.Context, to io.Writer) error { return fetchBackup(ctx, c.URL, signIn, to, shown) }, err
	}
	if c.Data != "" {
		if _, err := os.Stat(c.Data); err != nil {
			return nil, fmt.Errorf("there is no store in %s: %w", c.Data, err)
		}
	}
	return func(ctx context.Context, to io.Writer) error {
		// The engine alone: a backup changes nothing of the store.
		e, err := c.openEngine(ctx, slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			return err
		}
		defer func() { _ = e.Close() }()
		defer shown.end()
		return backup.Write(ctx, e, to, shown.tell)
	}, nil
}

// path is where the backup goes.
func (c *backupCommand) path() (string, error) {
	held, err := os.Stat(c.To)
	switch {
	case err == nil && held.IsDir(), strings.HasSuffix(c.To, string(filepath.Separator)):
		return freePath(filepath.Join(c.To, "tidemark-"+time.Now().UTC().Format("20060102T150405Z")), ".backup")
	case err == nil:
		return "", fmt.Errorf("%s is there already; name another file, or a folder", c.To)
	}
	return c.To, nil
}

// freePath is a path with an ending, numbered where others of the same second are
// there already or being made.
func freePath(path, ending string) (string, error) {
	free := path + ending
	for n := 2; ; n++ {
		taken := false
		for _, name := range []string{free, free + partialEnding} {
			_, err := os.Lstat(name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			taken = taken || err == nil
		}
		if !taken {
			return free, nil
		}
		free = fmt.Sprintf("%s-%d%s", path, n, ending)
	}
}

// partialEnding ends the name of a backup that is being made.
const partialEnding = ".partial"

// writeWhole makes a file of what write writes, if that is a whole backup. Until
// then the file has another name.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	partial := path + partialEnding
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close() // It was synced, or is not kept.
		if err != nil {
			_ = os.Remove(partial) // The reason is told already.
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	// What was written is read: the disk and the node may both have erred.
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, _, err := backup.Check(file); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return syncParent(path)
}

// syncParent makes the name of a file durable.
func syncParent(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// fetchBackup takes a backup from a node.
func fetchBackup(ctx context.Context, address string, signIn client.Options, to io.Writer, shown *progress) error {
	response, err := get(ctx, address, signIn, "/backup", nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	defer shown.end()
	counted := &counter{shown: shown}
	_, err = io.Copy(io.MultiWriter(to, counted), response.Body)
	if err != nil {
		err = fault.New(fault.Unavailable, "the node's backup was cut off after %d bytes: %w", counted.bytes, err)
	}
	return err
}

// counter shows how many bytes came.
type counter struct {
	shown *progress
	bytes uint64
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += uint64(len(p))
	c.shown.tell(backup.Header{}, backup.Progress{Bytes: c.bytes})
	return len(p), nil
}

// get asks a node for what it streams at an escaped path. A refusal of the node
// is returned with its kind.
func get(ctx context.Context, address string, signIn client.Options, path string, query url.Values) (*http.Response, error) {
	u, err := overHTTP(address)
	if err != nil {
		return nil, err
	}
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, err
	}
	u.RawPath, u.RawQuery = path, query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	switch {
	case signIn.Token != "":
		request.Header.Set("Authorization", "Bearer "+signIn.Token)
	case signIn.User != "":
		request.SetBasicAuth(signIn.User, signIn.Password)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "no node answers at %s: %w", u.Redacted(), err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, refusalOf(response, u.Host)
}
