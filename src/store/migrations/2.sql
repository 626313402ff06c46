-- Ids and keys are random, and an index that takes each as it comes writes a page of its own for nearly every new task as
-- soon as it has more pages than a commit has tasks. So neither has an index any more: see `name`.
CREATE TABLE task_2 (
    -- Given out once, upwards.
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
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
INSERT INTO task_2 SELECT * FROM task;
DROP TABLE task;
ALTER TABLE task_2 RENAME TO task;

CREATE INDEX task_listed ON task (scope, status_time, id, state);
CREATE INDEX task_context ON task (number >> 10, context_hash);
CREATE UNIQUE INDEX task_alias ON task (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX task_unfinished ON task (id) WHERE ended = 0;
CREATE INDEX task_ended ON task (status_time) WHERE ended = 1;

CREATE TABLE key_2 (
    -- Given out once, upwards.
    number INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (number),
    text TEXT NOT NULL,
    body BLOB NOT NULL,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE
) STRICT;
INSERT INTO key_2 SELECT * FROM key;
DROP TABLE key;
ALTER TABLE key_2 RENAME TO key;

CREATE INDEX key_task ON key (task);

-- Where the task of an id is, and the key of a text: a hash, and the number of the task, or of the key below zero. Rows are
-- added in their own order, thousands in a round, so that many share a page. Until its round a name is in memory alone.
CREATE TABLE name (
    hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;

-- One row: up to these numbers all tasks and keys have their names in `name`.
CREATE TABLE named (
    task INTEGER NOT NULL,
    key INTEGER NOT NULL
) STRICT;
INSERT INTO named VALUES (0, 0);
