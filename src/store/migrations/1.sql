-- Scopes: agent, tenant and owner. Tasks and keys refer to one by number.
CREATE TABLE scope (
    number INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    UNIQUE (agent, tenant, owner)
) STRICT;

-- Heads of the logs. Generated task and context ids begin with the time (UUIDv7), so a new task is appended to the end of the
-- table and of its indexes. Random ids would touch another page of an index with nearly every task.
CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    scope INTEGER NOT NULL REFERENCES scope (number),
    context TEXT NOT NULL,
    -- Id that the client has chosen.
    alias TEXT,
    -- Of the last entry.
    position INTEGER NOT NULL,
    -- As the log's format numbers states.
    state INTEGER NOT NULL,
    has_ended INTEGER NOT NULL,
    -- Whether the task waits for input from outside and has no other work.
    is_parked INTEGER NOT NULL,
    -- In milliseconds since 1970.
    status_time INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX task_id ON task (id);
CREATE UNIQUE INDEX task_alias ON task (scope, alias) WHERE alias IS NOT NULL;

-- Indexes of lists. They are read backwards: lists are ordered by status time descending, and appending to the end of an index
-- is cheapest. A list without a filter merges the states. Tasks with the same status time are ordered by id, which is not in
-- the indexes: few tasks share a millisecond.
CREATE INDEX task_by_state ON task (scope, state, status_time);
CREATE INDEX task_by_context ON task (scope, context, status_time, state);

-- Sweeps over all scopes.
CREATE INDEX task_unfinished ON task (id) WHERE has_ended = 0;
CREATE INDEX task_runnable ON task (id) WHERE has_ended = 0 AND is_parked = 0;
CREATE INDEX task_parked ON task (scope, status_time) WHERE has_ended = 0 AND is_parked = 1;
CREATE INDEX task_ended ON task (status_time) WHERE has_ended = 1;

-- Logs. A row is a batch, or up to 256 events of a large one, with the position of its last entry.
CREATE TABLE batch (
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    last_position INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, last_position)
) STRICT, WITHOUT ROWID;

-- Idempotency keys. Keys are random, so inserting one touches a random page of the unique index. The expiry of keys bounds it.
CREATE TABLE idempotency_key (
    number INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (number),
    text TEXT NOT NULL,
    -- SHA-256 of the request body.
    digest BLOB NOT NULL,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    -- Number of the turn that handles the message.
    turn INTEGER NOT NULL,
    -- Time of the record, in milliseconds since 1970.
    time INTEGER NOT NULL,
    UNIQUE (scope, text)
) STRICT;

CREATE INDEX idempotency_key_task ON idempotency_key (task);
CREATE INDEX idempotency_key_time ON idempotency_key (time);

-- Snapshots of folded tasks: a cache, which may be emptied at any time.
CREATE TABLE snapshot (
    task INTEGER PRIMARY KEY REFERENCES task (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Webhooks and the progress of their deliveries. A number is never reused: a worker that outlives its webhook must not record
-- its progress for another one.
CREATE TABLE webhook (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    id TEXT NOT NULL,
    -- Encrypted.
    registration BLOB NOT NULL,
    -- Number of times the webhook was replaced. Progress of an older registration is not recorded.
    generation INTEGER NOT NULL DEFAULT 0,
    -- Position of the last entry that was delivered or needs no delivery.
    position INTEGER NOT NULL,
    -- Failed attempts for the next entry.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Time of the next attempt, in milliseconds since 1970.
    next_attempt INTEGER NOT NULL DEFAULT 0,
    -- 0: active, 1: finished, 2: failed.
    delivery_state INTEGER NOT NULL DEFAULT 0,
    failure_reason TEXT NOT NULL DEFAULT '',
    UNIQUE (task, id)
) STRICT;

CREATE INDEX webhook_active ON webhook (number) WHERE delivery_state = 0;
CREATE INDEX webhook_failed ON webhook (number) WHERE delivery_state = 2;

-- Number of tasks by scope and state. Lists read their totals from it.
CREATE TABLE task_count (
    scope INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (scope, state)
) STRICT, WITHOUT ROWID;

-- One row: fingerprint of the key that encrypts the webhooks. The key is in a file of its own.
CREATE TABLE encryption_key (fingerprint BLOB NOT NULL) STRICT;
