package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the texts of all SQL that the engine sends after it is open,
// for its schema. Two rules keep each of them as fast as on an empty store, also
// while a foreign snapshot keeps dead rows alive:
//
//   - Of a key there is one live row, of the highest sequence. A lookup reads
//     the index from that end and stops at the first row it sees, so that it
//     never walks over the dead ones that were before it.
//   - Rows are found through their primary keys only, which connections.go
//     makes sure of whatever the planner believes of the table's size.
type statements struct {
	// The space's row, and the newest of its commits.
	lock, addSpace, latest, commitMark string
	// The same, as one who joins another's transaction looks at them.
	lockFree, newestMark string

	// Reads: of keys, and of ranges by direction and whether they have an end.
	get, getMany           string
	scan, scanTo           string
	scanBack, scanBackTo   string
	dropRange, dropRangeTo string

	// Writes.
	remove, insert, record, forget string

	// Snapshots, waiting and the clock.
	shown, cut, newest, clock string

	// The processes that have the store open.
	enter, entered, strike string

	// Dropping a space.
	drop, dropPart, dropTail string
}

func newStatements(schema string) statements {
	prefix := pgx.Identifier{schema}.Sanitize() + "."
	tables := strings.NewReplacer("{spaces}", prefix+"spaces", "{commits}", prefix+"commits", "{entries}", prefix+"entries", "{nodes}", prefix+"nodes")
	text := tables.Replace
	const rows = `SELECT key, sequence, value FROM {entries} WHERE space_id = $1 AND key >= $2`
	return statements{
		lock:     text(`SELECT dropped FROM {spaces} WHERE space_id = $1 FOR UPDATE`),
		addSpace: text(`INSERT INTO {spaces} (space_id) VALUES ($1) ON CONFLICT (space_id) DO NOTHING`),

		// The second statement of a commit has a snapshot of its own, which was
		// taken when the row was held: it sees all commits before.
		latest: text(`SELECT clock_timestamp(), n.sequence, n.batch, n.committed_at, k.batch
			FROM (SELECT 1) AS one
			LEFT JOIN LATERAL (SELECT sequence, batch, committed_at FROM {commits}
				WHERE space_id = $1 ORDER BY sequence DESC LIMIT 1) AS n ON true
			LEFT JOIN {commits} AS k ON k.space_id = $1 AND k.sequence = $2`),
		lockFree:   text(`SELECT space_id FROM {spaces} WHERE space_id = $1 FOR UPDATE SKIP LOCKED`),
		newestMark: text(`SELECT sequence, batch FROM {commits} WHERE space_id = $1 ORDER BY sequence DESC LIMIT 1`),
		commitMark: text(`SELECT batch FROM {commits} WHERE space_id = $1 AND sequence = $2`),

		get: text(`SELECT sequence, value FROM {entries} WHERE space_id = $1 AND key = $2 ORDER BY sequence DESC LIMIT 1`),
		getMany: text(`SELECT k.place, e.sequence, e.value
			FROM unnest($2::bytea[]) WITH ORDINALITY AS k (key, place)
			CROSS JOIN LATERAL (SELECT sequence, value FROM {entries}
				WHERE space_id = $1 AND key = k.key ORDER BY sequence DESC LIMIT 1) AS e`),
		scan:       text(rows + ` ORDER BY key LIMIT $3`),
		scanTo:     text(rows + ` AND key < $4 ORDER BY key LIMIT $3`),
		scanBack:   text(rows + ` ORDER BY key DESC LIMIT $3`),
		scanBackTo: text(rows + ` AND key < $4 ORDER BY key DESC LIMIT $3`),

		dropRange:   text(`DELETE FROM {entries} WHERE space_id = $1 AND key >= $2`),
		dropRangeTo: text(`DELETE FROM {entries} WHERE space_id = $1 AND key >= $2 AND key < $3`),

		// OFFSET 0 keeps the subquery whole. Taken apart, the planner may join the
		// keys to all of their rows before it looks which of them is the live one.
		remove: text(`DELETE FROM {entries} AS e USING
			(SELECT k.key, o.sequence FROM unnest($2::bytea[]) AS k (key)
				CROSS JOIN LATERAL (SELECT sequence FROM {entries}
					WHERE space_id = $1 AND key = k.key ORDER BY sequence DESC LIMIT 1) AS o OFFSET 0) AS old
			WHERE e.space_id = $1 AND e.key = old.key AND e.sequence = old.sequence`),
		insert: text(`INSERT INTO {entries} (space_id, sequence, key, value)
			SELECT $1, $2, k.key, k.value FROM unnest($3::bytea[], $4::bytea[]) AS k (key, value)`),
		record: text(`INSERT INTO {commits} (space_id, sequence, committed_at, batch) VALUES ($1, $2, $3, $4)`),
		forget: text(`DELETE FROM {commits} WHERE space_id = $1 AND sequence IN
			(SELECT sequence FROM (SELECT sequence, committed_at FROM {commits}
				WHERE space_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3) AS oldest
				WHERE sequence < $4 AND committed_at < $5) RETURNING sequence`),

		shown: text(`SELECT coalesce(s.dropped, false), n.sequence, n.batch, k.batch,
				coalesce(current_setting('in_hot_standby', true), 'off')
			FROM (SELECT 1) AS one
			LEFT JOIN {spaces} AS s ON s.space_id = $1
			LEFT JOIN LATERAL (SELECT sequence, batch FROM {commits}
				WHERE space_id = $1 ORDER BY sequence DESC LIMIT 1) AS n ON true
			LEFT JOIN {commits} AS k ON k.space_id = $1 AND k.sequence = $2`),
		cut: text(`SELECT s.space_id, coalesce(n.sequence, 0), coalesce(current_setting('in_hot_standby', true), 'off')
			FROM {spaces} AS s
			LEFT JOIN LATERAL (SELECT sequence FROM {commits}
				WHERE space_id = s.space_id ORDER BY sequence DESC LIMIT 1) AS n ON true
			WHERE NOT s.dropped ORDER BY s.space_id`),
		newest: text(`SELECT w.space_id, coalesce(s.dropped, false), coalesce(n.sequence, 0)
			FROM unnest($1::int[]) AS w (space_id)
			LEFT JOIN {spaces} AS s ON s.space_id = w.space_id
			LEFT JOIN LATERAL (SELECT sequence FROM {commits}
				WHERE space_id = w.space_id ORDER BY sequence DESC LIMIT 1) AS n ON true`),
		clock: text(`SELECT clock_timestamp(), (SELECT committed_at FROM {commits} ORDER BY committed_at DESC LIMIT 1)`),

		enter: text(`INSERT INTO {nodes} (node_id, name, address, started_at, seen_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, address = excluded.address,
				started_at = excluded.started_at, seen_at = excluded.seen_at`),
		entered: text(`SELECT node_id, name, address, started_at, seen_at FROM {nodes} ORDER BY node_id`),
		strike:  text(`DELETE FROM {nodes} WHERE node_id = $1`),

		drop:     text(`UPDATE {spaces} SET dropped = true WHERE space_id = $1`),
		dropPart: text(`SELECT key FROM {entries} WHERE space_id = $1 AND key >= $2 ORDER BY key OFFSET $3 LIMIT 1`),
		dropTail: text(`DELETE FROM {commits} WHERE space_id = $1 AND sequence < $2`),
	}
}
