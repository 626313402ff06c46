-- A step of a B-tree for each name, in two of them, was most of what a new task cost among a million. Now a row has the names of a
-- range of hashes, some hundreds in their order, and is written over when more come. Both are made anew from the tasks and keys.
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
