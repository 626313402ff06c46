-- Among a million tasks, one B-tree insertion per entry and level was most of the cost of a new task. Now a row is a page of
-- some hundred sorted entries of a range of hashes. Both levels are rebuilt from the tasks and keys.
DROP TABLE name;
DROP TABLE recent;
CREATE TABLE name (
    -- No hash in the block is below this, and none in those before is above.
    first INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE recent (
    first INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
UPDATE named SET task = 0, key = 0, swept = 0;
