package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/tidemarkdb/tidemark/internal/backup"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
)

// restoreCommand is tidemark restore.
type restoreCommand struct {
	source
	Check bool   `xor:"source" help:"Restore nothing: read the backup to its end and say what is in it."`
	Quiet bool   `help:"Show no progress."`
	From  string `arg:"" help:"Backup to restore, or - for standard input."`
}

// Help is the manual of the command.
func (restoreCommand) Help() string {
	return `Makes a store of a backup, in an empty folder or an empty schema of PostgreSQL,
whichever engine the backup is of: that is also how a store moves between them.

The store is written beside its place, read back and compared, and put in its
place last. A backup that is damaged or cut off is refused, and what was made of
it removed. Positions, places of readers, deadlines, deliveries and
deduplication windows are as they were; the store's clock goes on from the
moment of the backup, so what fell due meanwhile is due.

Examples:

  tidemark restore --data ./store tidemark-20260131T100000Z.backup
  zstd -d < store.backup.zst | tidemark restore --postgres postgres://user@host/db -`
}

// Run restores the backup.
func (c *restoreCommand) Run(s *surroundings) error {
	from, err := openInput(s, c.From)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if c.Check {
		header, held, err := backup.Check(from)
		if err != nil {
			return err
		}
		describe(s.out, "whole: ", header, held)
		return nil
	}
	log := slog.New(slog.NewTextHandler(s.errors, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var place backup.Place
	switch {
	case c.Data != "":
		place = backup.Folder(c.Data, log)
	case c.Postgres != "":
		place = backup.Schema(postgres.Options{URL: c.Postgres, Logger: log})
	default:
		return errors.New("restore to where? Name --data or --postgres, or --check to look at the backup")
	}
	shown := newProgress(s.errors, "restored", c.Quiet)
	header, held, err := backup.Restore(s.ctx, from, place, shown.tell)
	shown.end()
	if err != nil {
		return err
	}
	describe(s.out, "restored and compared: ", header, held)
	return nil
}

// openInput opens a file, or standard input for "-".
func openInput(s *surroundings, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(s.in), nil
	}
	return os.Open(name)
}

func describe(out io.Writer, what string, header backup.Header, held backup.Progress) {
	fmt.Fprintf(out, "%sa store of the engine %s at %s, %d databases, %d rows of %s\n",
		what, header.Engine, header.Taken.Format(time.RFC3339), max(held.Spaces-1, 0), held.Rows, sizeText(held.Bytes))
}
