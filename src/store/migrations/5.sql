-- The index of names is too large for a round to put many of its names on one page of it. So a round goes into `recent`, which is
-- small, and from there in the order of the hashes, a little with every round, into `name`: by then many go to each page.
CREATE TABLE recent (
    hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;

-- The hash up to which the names in `recent` have gone on, this time round.
ALTER TABLE named ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;

-- Whether a task waits for somebody outside and has nothing else to do. Tasks of before are looked at as if they had.
ALTER TABLE task ADD COLUMN parked INTEGER NOT NULL DEFAULT 0;

CREATE INDEX task_with_work ON task (id) WHERE ended = 0 AND parked = 0;
CREATE INDEX task_parked ON task (scope, status_time) WHERE ended = 0 AND parked = 1;
