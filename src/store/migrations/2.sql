-- Ids and keys are random. An index that is updated row by row writes one page for nearly every new task once it has more
-- pages than a commit has tasks. Both indexes are replaced by the table `name`.
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

-- Index of ids and keys: hash, and the number of the task or the negated number of the key. Entries are buffered in memory
-- and inserted in sorted order, thousands at a time, so that many share a page.
CREATE TABLE name (
    hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;

-- One row, the watermark: tasks and keys up to these numbers are in `name`.
CREATE TABLE named (
    task INTEGER NOT NULL,
    key INTEGER NOT NULL
) STRICT;
INSERT INTO named VALUES (0, 0);
