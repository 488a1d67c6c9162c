-- What is in the entries, for people: the engine itself reads none of this. The
-- layout of keys and rows is that of internal/store (keys.go, message.go,
-- tail.go, group_rows.go) and internal/topic (entry.go), whose changes bring new views.
--
-- CASE keeps a row of another kind from being decoded, in whatever order the
-- conditions are looked at. Columns that are called key or end with _key are
-- the bounds by which rows are found fast.

CREATE OR REPLACE VIEW {{schema}}.databases AS
SELECT CASE WHEN length(value) = 4 THEN {{number "value" "0" 4}} END::int AS space_id,
       CASE WHEN get_byte(key, 0) = 68 THEN
           convert_from(substring(key from 2 for position('\x00'::bytea in key) - 2), 'UTF8') END AS namespace,
       CASE WHEN get_byte(key, 0) = 68 THEN
           convert_from(substring(key from position('\x00'::bytea in key) + 1), 'UTF8') END AS name
FROM {{schema}}.entries
WHERE space_id = 0 AND key >= '\x44'::bytea AND key < '\x45'::bytea;

-- The definitions of topics, with where their messages lie.
CREATE OR REPLACE VIEW {{schema}}.topic_definitions AS
SELECT d.space_id, d.topic_id, d.name,
       decode('6d' || lpad(to_hex(d.topic_id), 8, '0'), 'hex') AS first_key,
       decode('6d' || lpad(to_hex(d.topic_id + 1), 8, '0'), 'hex') AS end_key,
       decode('73' || lpad(to_hex(d.topic_id), 8, '0'), 'hex') AS state_key
FROM (
    SELECT space_id,
           CASE WHEN get_byte(key, 0) = 84 THEN convert_from(substring(key from 2), 'UTF8') END AS name,
           -- The definition is CBOR, and its field ID comes first.
           CASE WHEN position('\x624944'::bytea in value) > 0 THEN
               {{cbor "value" "position('\\x624944'::bytea in value) + 2"}} END AS topic_id
    FROM {{schema}}.entries
    WHERE space_id > 0 AND key >= '\x54'::bytea AND key < '\x55'::bytea
      -- Kind: topic
      AND position('\x644b696e6465746f706963'::bytea in value) > 0
) AS d;

CREATE OR REPLACE VIEW {{schema}}.topic_events AS
SELECT space_id,
       key,
       CASE WHEN length(key) = 13 THEN {{number "key" "1" 4}} END AS topic_id,
       CASE WHEN length(key) = 13 THEN {{number "key" "5" 8}} END AS position,
       CASE WHEN length(key) <> 13 OR length(value) < 17 THEN NULL
            WHEN get_byte(value, 0) & 1 = 0 THEN
                -- Given when the message was sealed: a uuid of its time, position and topic.
                (lpad(to_hex((({{number "value" "1" 8}} / 1000000) << 16) | 28672 |
                     ((({{number "value" "1" 8}} % 1000000) << 12) / 1000000)), 16, '0') ||
                 lpad(to_hex((2::bigint << 62) | (({{number "key" "5" 8}} & 281474976710655) << 14) |
                     ({{number "key" "1" 4}} & 16383)), 16, '0'))::uuid::text
            WHEN get_byte(value, 19) = 16 THEN
                ({{number "value" "20" 8}} # (1::bigint << 63))::text
            WHEN get_byte(value, 19) = 32 THEN
                '''' || encode(substring(value from 21 for {{number "value" "17" 2}}::int - 3), 'escape') || ''''
            WHEN get_byte(value, 19) = 64 THEN
                encode(substring(value from 21 for 16), 'hex')::uuid::text
            ELSE encode(substring(value from 20 for {{number "value" "17" 2}}::int), 'hex')
       END AS identity,
       CASE WHEN length(value) >= 17 THEN
           timestamptz '1970-01-01 00:00:00+00' + ({{number "value" "1" 8}} / 1000) * interval '1 microsecond' END AS appended_at,
       CASE WHEN length(value) >= 17 THEN {{number "value" "9" 8}} END AS bytes_up_to_here,
       -- The value in CBOR; encode(payload, 'escape') shows the texts in it.
       CASE WHEN length(value) < 17 THEN NULL
            WHEN get_byte(value, 0) & 3 = 0 THEN substring(value from 18)
            -- After a key, or after headers.
            WHEN get_byte(value, 0) & 3 < 3 THEN substring(value from 20 + {{number "value" "17" 2}}::int)
            ELSE substring(value from 22 + {{number "value" "17" 2}}::int
                + {{number "value" (printf "(19 + %s)::int" (number "value" "17" 2)) 2}}::int)
       END AS payload,
       sequence
FROM {{schema}}.entries
WHERE space_id > 0 AND key >= '\x6d'::bytea AND key < '\x6e'::bytea;

-- What each topic holds. Rows of messages that retention let go and
-- housekeeping has not yet removed are not counted.
CREATE OR REPLACE VIEW {{schema}}.topics AS
SELECT b.namespace, b.name AS database, t.name, t.space_id, t.topic_id,
       coalesce(s.first, 1) AS first,
       greatest(coalesce(n.position, 0), coalesce(s.last, 0)) AS last,
       greatest(coalesce(n.position, 0), coalesce(s.last, 0)) + 1 - coalesce(s.first, 1) AS messages,
       greatest(coalesce(n.bytes_up_to_here, 0), coalesce(s.bytes, 0)) - coalesce(s.bytes_before, 0) AS bytes,
       n.appended_at AS newest_at,
       t.first_key, t.end_key
FROM {{schema}}.topic_definitions AS t
JOIN {{schema}}.databases AS b ON b.space_id = t.space_id
LEFT JOIN LATERAL (
    SELECT {{number "value" "0" 8}} AS first, {{number "value" "8" 8}} AS last,
           {{number "value" "16" 8}} AS bytes_before, {{number "value" "24" 8}} AS bytes
    FROM {{schema}}.entries
    WHERE space_id = t.space_id AND key = t.state_key AND length(value) >= 32
    ORDER BY sequence DESC LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT position, bytes_up_to_here, appended_at
    FROM {{schema}}.topic_events
    WHERE space_id = t.space_id AND key >= t.first_key AND key < t.end_key
    ORDER BY key DESC LIMIT 1
) AS n ON true;

-- The places of named readers and groups. A group's committed is before the
-- first message that it has not settled; a reader's is its position.
CREATE OR REPLACE VIEW {{schema}}.topic_subscriptions AS
SELECT r.space_id,
       CASE WHEN length(r.key) > 5 THEN {{number "r.key" "1" 4}} END AS topic_id,
       CASE WHEN length(r.key) > 5 THEN convert_from(substring(r.key from 6), 'UTF8') END AS name,
       'reader' AS kind,
       CASE WHEN length(r.value) = 8 THEN {{number "r.value" "0" 8}} END AS position,
       CASE WHEN length(r.value) = 8 THEN {{number "r.value" "0" 8}} END AS committed
FROM {{schema}}.entries AS r
WHERE r.space_id > 0 AND r.key >= '\x70'::bytea AND r.key < '\x71'::bytea
UNION ALL
SELECT g.space_id, g.topic_id, g.name, 'group', h.position, coalesce(f.first - 1, h.position)
FROM (
    SELECT space_id,
           CASE WHEN length(key) > 5 THEN {{number "key" "1" 4}} END AS topic_id,
           CASE WHEN length(key) > 5 THEN convert_from(substring(key from 6), 'UTF8') END AS name,
           CASE WHEN position('\x624944'::bytea in value) > 0 THEN
               {{cbor "value" "position('\\x624944'::bytea in value) + 2"}} END AS group_id
    FROM {{schema}}.entries
    WHERE space_id > 0 AND key >= '\x47'::bytea AND key < '\x48'::bytea
) AS g
-- The head is a version, and then numbers of seven bits a byte, the last byte
-- of each below 128; the second number is the position.
LEFT JOIN LATERAL (
    SELECT (SELECT sum((get_byte(value, i) & 127)::bigint << (7 * (i - begun)::int))
            FROM generate_series(begun, ended) AS i)::bigint AS position
    FROM (
        SELECT value, begun,
               (SELECT min(i) FROM generate_series(begun, length(value) - 1) AS i WHERE get_byte(value, i) < 128) AS ended
        FROM (
            SELECT value,
                   1 + (SELECT min(i) FROM generate_series(1, length(value) - 1) AS i WHERE get_byte(value, i) < 128) AS begun
            FROM {{schema}}.entries
            WHERE space_id = g.space_id AND key = decode('68' || lpad(to_hex(g.group_id), 8, '0'), 'hex')
            ORDER BY sequence DESC LIMIT 1
        ) AS head
    ) AS bounds
) AS h ON true
-- A row holds eight neighbouring positions and begins with the offset of the
-- first that is not settled.
LEFT JOIN LATERAL (
    SELECT CASE WHEN length(value) > 0 THEN {{number "key" "5" 8}} * 8 + get_byte(value, 0) END AS first
    FROM {{schema}}.entries
    WHERE space_id = g.space_id
      AND key >= decode('66' || lpad(to_hex(g.group_id), 8, '0'), 'hex')
      AND key < decode('66' || lpad(to_hex(g.group_id + 1), 8, '0'), 'hex')
    ORDER BY key LIMIT 1
) AS f ON true;
