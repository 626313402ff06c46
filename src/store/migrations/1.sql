-- Scopes: agent, tenant and owner. Every task refers to one by number.
CREATE TABLE scope (
    number INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    UNIQUE (agent, tenant, owner)
) STRICT;

-- Heads of the logs. Tasks are numbered in the order of creation, so that the rows of a new task are appended to the end of
-- their tables. Ids are random: inserting in their order would get more expensive with every task.
CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    scope INTEGER NOT NULL REFERENCES scope (number),
    context TEXT NOT NULL,
    -- A number made of the context, see `task_context`.
    context_hash INTEGER NOT NULL,
    alias TEXT,
    -- Of the last entry.
    position INTEGER NOT NULL,
    -- As the log's format numbers states.
    state INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    -- In milliseconds since 1970.
    status_time INTEGER NOT NULL
) STRICT;

-- Read backwards: lists are ordered by status time descending, and appending to the end of an index is cheapest.
CREATE INDEX task_listed ON task (scope, status_time, id, state);
-- Context ids are random too. This index consists of slices of 1,024 tasks: a new task touches the last slice only, and a
-- lookup searches every slice.
CREATE INDEX task_context ON task (number >> 10, context_hash);
CREATE UNIQUE INDEX task_alias ON task (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX task_unfinished ON task (id) WHERE ended = 0;
CREATE INDEX task_ended ON task (status_time) WHERE ended = 1;

-- Logs. A row is a batch, or up to 256 events of a large one, with the position of its last entry.
CREATE TABLE batch (
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, last)
) STRICT, WITHOUT ROWID;

-- Idempotency keys with the digest of the request body.
CREATE TABLE key (
    number INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (number),
    text TEXT NOT NULL,
    body BLOB NOT NULL,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    UNIQUE (scope, text)
) STRICT;

CREATE INDEX key_task ON key (task);

-- Snapshots of folded tasks: a cache, which may be emptied at any time.
CREATE TABLE snapshot (
    task INTEGER PRIMARY KEY REFERENCES task (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Webhooks, numbered in the order of their first registration.
CREATE TABLE config (
    number INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (task, id)
) STRICT;

-- Number of tasks by scope and state; scope 0 counts all scopes. Lists read their totals from it.
CREATE TABLE tally (
    scope INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (scope, state)
) STRICT, WITHOUT ROWID;
