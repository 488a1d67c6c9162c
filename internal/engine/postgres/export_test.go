package postgres

import "strings"

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
