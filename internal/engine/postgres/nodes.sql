-- The processes that have the store open. Each updates its own row about once a
-- second, and none is locked for longer than that takes.
CREATE TABLE IF NOT EXISTS {{schema}}.nodes (
    node_id uuid PRIMARY KEY,
    name text NOT NULL,
    address text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);
