-- How far the deliveries to a webhook are. Those that were registered before anything was delivered begin where their task is.
-- Counts how often the webhook was registered: what belongs to an older registration is not written into a newer one.
ALTER TABLE config ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
-- Of the last entry that was delivered, or had not to be.
ALTER TABLE config ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
-- How often the entry behind it was tried.
ALTER TABLE config ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
-- When it is tried again, in milliseconds since 1970.
ALTER TABLE config ADD COLUMN due INTEGER NOT NULL DEFAULT 0;
-- 0: there may be more to deliver, 1: there is no more, 2: given up.
ALTER TABLE config ADD COLUMN standing INTEGER NOT NULL DEFAULT 0;
-- Why it was given up.
ALTER TABLE config ADD COLUMN reason TEXT NOT NULL DEFAULT '';
-- Whether the body is encrypted.
ALTER TABLE config ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;
UPDATE config SET position = (SELECT position FROM task WHERE task.number = config.task);

CREATE INDEX config_open ON config (number) WHERE standing = 0;
CREATE INDEX config_stopped ON config (number) WHERE standing = 2;

-- One row: which key the webhooks are encrypted under. The key itself is in a file of its own.
CREATE TABLE vault (fingerprint BLOB NOT NULL) STRICT;
