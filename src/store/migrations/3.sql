-- Number of the turn that handles the message of a key, so that it need not be counted from the log. 0 for older keys.
ALTER TABLE key ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
