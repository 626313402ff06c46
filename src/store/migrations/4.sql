-- Delivery progress of webhooks. Existing webhooks start at the position of their task.
-- Number of times the webhook was replaced. Progress of an older registration is not recorded.
ALTER TABLE config ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
-- Position of the last entry that was delivered or needs no delivery.
ALTER TABLE config ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
-- Failed attempts for the next entry.
ALTER TABLE config ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
-- Time of the next attempt, in milliseconds since 1970.
ALTER TABLE config ADD COLUMN due INTEGER NOT NULL DEFAULT 0;
-- Delivery state. 0: active, 1: finished, 2: failed.
ALTER TABLE config ADD COLUMN standing INTEGER NOT NULL DEFAULT 0;
-- Reason of the failure.
ALTER TABLE config ADD COLUMN reason TEXT NOT NULL DEFAULT '';
-- Whether the body is encrypted.
ALTER TABLE config ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;
UPDATE config SET position = (SELECT position FROM task WHERE task.number = config.task);

CREATE INDEX config_open ON config (number) WHERE standing = 0;
CREATE INDEX config_stopped ON config (number) WHERE standing = 2;

-- One row: fingerprint of the key that encrypts the webhooks. The key is in a file of its own.
CREATE TABLE vault (fingerprint BLOB NOT NULL) STRICT;
