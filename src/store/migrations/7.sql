-- Time of the record of a key, for its expiry. Older keys have expired.
ALTER TABLE key ADD COLUMN time INTEGER NOT NULL DEFAULT 0;
CREATE INDEX key_time ON key (time);
