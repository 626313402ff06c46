-- The number of the turn that took the message of a key, so that nobody has to count messages in the log to know it. 0 for keys
-- of before.
ALTER TABLE key ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
