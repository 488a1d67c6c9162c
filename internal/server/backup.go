package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/tidemarkdb/tidemark/fault"
	"github.com/tidemarkdb/tidemark/internal/backup"
	"github.com/tidemarkdb/tidemark/internal/export"
)

// mediaBackup is the type of a backup; see package backup.
const mediaBackup = "application/vnd.tidemark.backup"

// serveBackup streams a backup of the whole store. One is made at a time: it
// holds the store's state for as long as it runs. A stream that does not end as
// a backup ends was cut off, and whoever reads it notices.
func (s *Server) serveBackup(w http.ResponseWriter, r *http.Request) {
	x := s.newExchange(w, r)
	x.stream(mediaBackup, func(ctx context.Context, to io.Writer) error {
		if !s.backingUp.TryLock() {
			return errBackingUp
		}
		defer s.backingUp.Unlock()
		return backup.Write(ctx, s.store.Engine(), to, nil)
	})
}

// errBackingUp is told to owners alone: nobody else learns of backups.
var errBackingUp = fault.New(fault.Unavailable, "a backup is being taken on this node, and one at a time is the limit; try again later")

func (s *Server) newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{server: s, w: w, r: r, format: acceptedFormat(r), started: time.Now()}
	x.log = s.log.With(slog.String("request", requestID(w, r)), slog.String("remote", r.RemoteAddr))
	return x
}

// stream answers an owner of the store with what write writes. Where that
// fails in the middle the connection is cut off, so that the client does not
// take what it has for the whole.
func (x *exchange) stream(media string, write func(context.Context, io.Writer) error) {
	if !x.streamWhole(media, write) {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) streamWhole(media string, write func(context.Context, io.Writer) error) (whole bool) {
	defer x.recover()
	s := x.server
	if s.draining.Err() != nil {
		x.refuse(http.StatusServiceUnavailable, "draining", errShuttingDown)
		return true
	}
	leave, err := s.gate.enterSession(x.r.RemoteAddr)
	if err != nil {
		x.refuse(http.StatusTooManyRequests, "sessions", err)
		return true
	}
	defer leave()
	if err := s.mayTakeAll(x.r); err != nil {
		x.refuseCaller(err)
		return true
	}
	ctx, done := context.WithCancel(x.r.Context())
	defer done()
	defer context.AfterFunc(s.running, done)()
	body := &streamed{exchange: x, media: media}
	err = write(ctx, body)
	log := x.log.With(slog.String("path", x.r.URL.Path), slog.Int64("bytes", body.bytes), slog.Duration("took", time.Since(x.started)))
	switch {
	case err != nil && !x.answered:
		status := statusOf(err)
		if errors.Is(err, errBackingUp) {
			status = http.StatusTooManyRequests
		}
		x.refuse(status, "stream", err)
	case err != nil:
		log.Warn("a stream was cut off", slog.Any("reason", err))
		return false
	default:
		log.Info("a stream was taken")
	}
	return true
}

// The types of exports; see package export.
var mediaExports = map[export.Format]string{export.Statements: "text/plain; charset=utf-8", export.JSON: "application/x-ndjson"}

// serveExport streams a database as statements, or as JSON a row a line.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request) {
	x := s.newExchange(w, r)
	format := export.Format(r.FormValue("format"))
	if err := export.CheckFormat(format); err != nil {
		x.refuse(http.StatusBadRequest, "format", err)
		return
	}
	namespace, database := r.PathValue("namespace"), r.PathValue("database")
	x.stream(mediaExports[format], func(ctx context.Context, to io.Writer) error {
		return export.Write(ctx, s.store, namespace, database, format, to)
	})
}

// streamed is the body of an answer that is written piece by piece. Its client
// may take as long as it wants in all, but not for a piece.
type streamed struct {
	*exchange
	media string
	bytes int64
}

func (b *streamed) Write(piece []byte) (int, error) {
	if b.server.draining.Err() != nil {
		return 0, errShuttingDown
	}
	if !b.answered {
		header := b.w.Header()
		header.Set("Content-Type", b.media)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		b.answered = true
		b.w.WriteHeader(http.StatusOK)
	}
	b.server.setWriteDeadline(b.w)
	n, err := b.w.Write(piece)
	b.bytes += int64(n)
	if err != nil {
		return n, fmt.Errorf("the client takes no more: %w", err)
	}
	return n, nil
}
