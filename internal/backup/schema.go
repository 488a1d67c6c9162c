package backup

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tidemarkdb/tidemark/internal/engine"
	"github.com/tidemarkdb/tidemark/internal/engine/postgres"
)

// schema is a schema of a PostgreSQL database that a store is restored to.
type schema struct {
	options postgres.Options
	// beside is the schema that the store is restored in.
	beside string
}

// Schema is the schema of a store in PostgreSQL, which is empty or not there.
// The store is restored in a schema beside it and renamed last, so the user of
// the URL must be allowed to make schemas.
func Schema(options postgres.Options) Place { return &schema{options: options} }

func (s *schema) Open(ctx context.Context, clock func() time.Time) (engine.Engine, error) {
	if err := postgres.CheckVacant(ctx, s.options); err != nil {
		return nil, err
	}
	options := s.options
	options.Schema = "tidemark_restoring_" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
	options.Clock = clock
	// Before it is opened, which may fail when it is half made.
	s.beside = options.Schema
	return postgres.Open(ctx, options)
}

func (s *schema) Keep(ctx context.Context) error {
	if err := postgres.RenameSchema(ctx, s.options, s.beside); err != nil {
		return err
	}
	s.beside = ""
	return nil
}

func (s *schema) Discard(ctx context.Context) error {
	if s.beside == "" {
		return nil
	}
	err := postgres.RemoveSchema(ctx, s.options, s.beside)
	if err == nil {
		s.beside = ""
	}
	return err
}
