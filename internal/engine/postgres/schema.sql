-- A space is a database, and space 0 what is above databases. The row is what a
-- commit takes (FOR UPDATE); it changes once, when the space is dropped.
CREATE TABLE IF NOT EXISTS {{schema}}.spaces (
    space_id int PRIMARY KEY,
    dropped boolean NOT NULL DEFAULT false
);

-- The newest commits of each space. The newest of all is the space's state;
-- batch is the commit's mark, by which its outcome is found out.
CREATE TABLE IF NOT EXISTS {{schema}}.commits (
    space_id int NOT NULL,
    sequence bigint NOT NULL,
    committed_at timestamptz NOT NULL,
    batch uuid NOT NULL,
    PRIMARY KEY (space_id, sequence)
);
CREATE INDEX IF NOT EXISTS commits_committed_at ON {{schema}}.commits (committed_at);

-- All keys and values; sequence is the commit that wrote the row. There is one
-- row a key: the sequence is in the primary key so that the live row is found
-- without walking over dead ones.
CREATE TABLE IF NOT EXISTS {{schema}}.entries (
    sequence bigint NOT NULL,
    space_id int NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (space_id, key, sequence)
);
