-- Whose tasks, by number: every task names one of these.
CREATE TABLE scope (
    number INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    UNIQUE (agent, tenant, owner)
) STRICT;

-- The head of every log. Tasks are numbered as they come, so that all that belongs to a new one lands at the end of its
-- table: ids are random, and rows in the order of random ids cost more with every task there is.
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

-- Read from its end: lists go from the newest status, and what is new is cheapest to add at the end.
CREATE INDEX task_listed ON task (scope, status_time, id, state);
-- Contexts are as random as ids, and a second index in random order would cost as much again. So this one is in slices of
-- 1,024 tasks: a new task touches the last slice alone, and whoever looks for a context looks into each of them.
CREATE INDEX task_context ON task (number >> 10, context_hash);
CREATE UNIQUE INDEX task_alias ON task (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX task_unfinished ON task (id) WHERE ended = 0;
CREATE INDEX task_ended ON task (status_time) WHERE ended = 1;

-- The logs. A row is a batch, or a piece of a large one, under the position of its last entry.
CREATE TABLE batch (
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, last)
) STRICT, WITHOUT ROWID;

-- Idempotency keys, and the digest of what was sent under them.
CREATE TABLE key (
    number INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (number),
    text TEXT NOT NULL,
    body BLOB NOT NULL,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    UNIQUE (scope, text)
) STRICT;

CREATE INDEX key_task ON key (task);

-- Folded tasks: a cache, that may be emptied at any time.
CREATE TABLE snapshot (
    task INTEGER PRIMARY KEY REFERENCES task (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Webhooks, oldest first by number.
CREATE TABLE config (
    number INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (task, id)
) STRICT;

-- How many tasks each scope has in each state; scope 0 stands for all of them. Lists need not count.
CREATE TABLE tally (
    scope INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (scope, state)
) STRICT, WITHOUT ROWID;
