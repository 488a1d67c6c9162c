package postgres

import (
	"context"
	"strings"
)

// SchemaVersion is the version of the tables that the engine makes.
const SchemaVersion = schemaVersion

// Removal is the statement that removes the old rows of keys, of a space and an
// array of them.
func Removal(schema string) string { return newStatements(schema).remove }

// Lookups are the queries by which the engine finds a space's row, its newest
// commit and a key, of space 1, as a test may send them.
func Lookups(schema, key string) map[string]string {
	sql := newStatements(schema)
	values := strings.NewReplacer("$1", "1", "$2", "'"+key+"'", "FOR UPDATE", "")
	newest, _, _ := strings.Cut(sql.latest, "LEFT JOIN "+`"`+schema)
	return map[string]string{
		"the row":           values.Replace(sql.lock),
		"the newest commit": values.Replace(strings.Replace(newest, ", k.batch", "", 1)),
		"a key":             values.Replace(sql.get),
	}
}

// Setting is what a setting of PostgreSQL's is on the engine's connections.
func (e *Engine) Setting(ctx context.Context, name string) (setting string, err error) {
	err = e.queryRow(ctx, "SELECT current_setting('"+name+"')", &setting)
	return setting, err
}
