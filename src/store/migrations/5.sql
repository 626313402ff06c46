-- Second level of the id index. `name` is so large that a flush has few entries per page. A flush now goes into `recent`, which
-- is small, and is merged from there into `name` in the order of the hashes, with many entries per page.
CREATE TABLE recent (
    hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;

-- Hash up to which `recent` is merged into `name`, in the current pass.
ALTER TABLE named ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;

-- Whether a task waits for input from outside and has no other work. Older tasks count as having work.
ALTER TABLE task ADD COLUMN parked INTEGER NOT NULL DEFAULT 0;

CREATE INDEX task_with_work ON task (id) WHERE ended = 0 AND parked = 0;
CREATE INDEX task_parked ON task (scope, status_time) WHERE ended = 0 AND parked = 1;
