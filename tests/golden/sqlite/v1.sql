-- A file of schema version 1 with all that a store records. Never changed after a release.
PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE batch (
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    last_position INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, last_position)
) STRICT, WITHOUT ROWID;
INSERT INTO "batch" VALUES(1,1,X'01D00F010701615B4E2835');
INSERT INTO "batch" VALUES(1,2,X'01A01F01070162A285E3C7');
INSERT INTO "batch" VALUES(2,1,X'01B81701070163037E116F');
CREATE TABLE encryption_key (fingerprint BLOB NOT NULL) STRICT;
INSERT INTO "encryption_key" VALUES(X'8C0CC17A04942CC4F8E0FE0B302606D3');
CREATE TABLE idempotency_key (
    number INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (number),
    text TEXT NOT NULL,
    -- SHA-256 of the request body.
    digest BLOB NOT NULL,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    -- Number of the turn that handles the message.
    turn INTEGER NOT NULL,
    -- Time of the record, in milliseconds since 1970.
    time INTEGER NOT NULL,
    UNIQUE (scope, text)
) STRICT;
INSERT INTO "idempotency_key" VALUES(1,1,'key',X'0707070707070707070707070707070707070707070707070707070707070707',1,7,1000);
CREATE TABLE scope (
    number INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    UNIQUE (agent, tenant, owner)
) STRICT;
INSERT INTO "scope" VALUES(1,'agent','tenant','ann');
CREATE TABLE snapshot (
    task INTEGER PRIMARY KEY REFERENCES task (number) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
INSERT INTO "snapshot" VALUES(1,2,X'03047461736B0163010001D00F0000000000010033F29E9B');
CREATE TABLE task (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    scope INTEGER NOT NULL REFERENCES scope (number),
    context TEXT NOT NULL,
    -- Id that the client has chosen.
    alias TEXT,
    -- Of the last entry.
    position INTEGER NOT NULL,
    -- As the log's format numbers states.
    state INTEGER NOT NULL,
    has_ended INTEGER NOT NULL,
    -- Whether the task waits for input from outside and has no other work.
    is_parked INTEGER NOT NULL,
    -- In milliseconds since 1970.
    status_time INTEGER NOT NULL
) STRICT;
INSERT INTO "task" VALUES(1,'task',1,'c','alias',2,6,0,0,2000);
INSERT INTO "task" VALUES(2,'ended',1,'c',NULL,1,3,1,0,1500);
CREATE TABLE task_count (
    scope INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (scope, state)
) STRICT, WITHOUT ROWID;
INSERT INTO "task_count" VALUES(1,1,0);
INSERT INTO "task_count" VALUES(1,3,1);
INSERT INTO "task_count" VALUES(1,6,1);
CREATE TABLE webhook (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    id TEXT NOT NULL,
    -- Encrypted.
    registration BLOB NOT NULL,
    -- Number of times the webhook was replaced. Progress of an older registration is not recorded.
    generation INTEGER NOT NULL DEFAULT 0,
    -- Position of the last entry that was delivered or needs no delivery.
    position INTEGER NOT NULL,
    -- Failed attempts for the next entry.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Time of the next attempt, in milliseconds since 1970.
    next_attempt INTEGER NOT NULL DEFAULT 0,
    -- 0: active, 1: finished, 2: failed.
    delivery_state INTEGER NOT NULL DEFAULT 0,
    failure_reason TEXT NOT NULL DEFAULT '',
    UNIQUE (task, id)
) STRICT;
INSERT INTO "webhook" VALUES(1,1,'hook',X'893454178012D642D869CA09D474D26493F19FD438B5C39A3492CC693E4C2939A6B5C2AD87EC99C5483C692DC422D67091DA185DFDD967EE13EA793783369D446F879DA7FA',0,0,2,2500,0,'');
CREATE UNIQUE INDEX task_id ON task (id);
CREATE UNIQUE INDEX task_alias ON task (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX task_by_state ON task (scope, state, status_time);
CREATE INDEX task_by_context ON task (scope, context, status_time, state);
CREATE INDEX task_unfinished ON task (id) WHERE has_ended = 0;
CREATE INDEX task_runnable ON task (id) WHERE has_ended = 0 AND is_parked = 0;
CREATE INDEX task_parked ON task (scope, status_time) WHERE has_ended = 0 AND is_parked = 1;
CREATE INDEX task_ended ON task (status_time) WHERE has_ended = 1;
CREATE INDEX idempotency_key_task ON idempotency_key (task);
CREATE INDEX idempotency_key_time ON idempotency_key (time);
CREATE INDEX webhook_active ON webhook (number) WHERE delivery_state = 0;
CREATE INDEX webhook_failed ON webhook (number) WHERE delivery_state = 2;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('webhook',1);
PRAGMA application_id = 1098151011;
PRAGMA user_version = 1;
COMMIT;
