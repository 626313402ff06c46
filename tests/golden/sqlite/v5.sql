-- A file as version 5 of the schema made it: as version 4, with a name in the small index. Never changed.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE batch (
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, last)
) STRICT, WITHOUT ROWID;
INSERT INTO "batch" VALUES(1,1,X'01D00F01070161');
INSERT INTO "batch" VALUES(1,2,X'01A01F01070162');
INSERT INTO "batch" VALUES(2,1,X'01B81701070163');
CREATE TABLE config (
    number INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE,
    id TEXT NOT NULL,
    body BLOB NOT NULL, generation INTEGER NOT NULL DEFAULT 0, position INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, due INTEGER NOT NULL DEFAULT 0, standing INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', sealed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (task, id)
) STRICT;
INSERT INTO "config" VALUES(1,1,'hook',X'000102030405060708090A0BEB52AAEC0C4F2F8DF039479FC8ABB140A306B58DB27544C5127E5C9368A68DBC75A576ABB6C95822B14FA9AD447691A6CB6BFA6D1AC5BD6E86',3,1,2,2500,0,'',1);
CREATE TABLE "key" (
    -- Given out once, upwards.
    number INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (number),
    text TEXT NOT NULL,
    body BLOB NOT NULL,
    task INTEGER NOT NULL REFERENCES task (number) ON DELETE CASCADE
, turn INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "key" VALUES(1,1,'key',X'0707070707070707070707070707070707070707070707070707070707070707',1,7);
CREATE TABLE name (
    hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "name" VALUES(182571960215513,-1);
CREATE TABLE named (
    task INTEGER NOT NULL,
    key INTEGER NOT NULL
, swept INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "named" VALUES(1,1,77);
CREATE TABLE recent (
    hash INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "recent" VALUES(239007345608617,1);
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
INSERT INTO "snapshot" VALUES(1,2,X'01047461736B0163010001D00F000000');
CREATE TABLE tally (
    scope INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (scope, state)
) STRICT, WITHOUT ROWID;
INSERT INTO "tally" VALUES(0,1,0);
INSERT INTO "tally" VALUES(0,3,1);
INSERT INTO "tally" VALUES(0,6,1);
INSERT INTO "tally" VALUES(1,1,0);
INSERT INTO "tally" VALUES(1,3,1);
INSERT INTO "tally" VALUES(1,6,1);
CREATE TABLE "task" (
    -- Given out once, upwards.
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    scope INTEGER NOT NULL REFERENCES scope (number),
    context TEXT NOT NULL,
    -- A number made of the context, see `task_context`.
    context_hash INTEGER NOT NULL,
    alias TEXT,
    -- Of the last entry.
    position INTEGER NOT NULL,
    -- As the log's format numbers states.
    state INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    -- In milliseconds since 1970.
    status_time INTEGER NOT NULL
, parked INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "task" VALUES(1,'task',1,'c',2942557772,'alias',2,6,0,2000,0);
INSERT INTO "task" VALUES(2,'ended',1,'c',2942557772,NULL,1,3,1,1500,0);
CREATE TABLE vault (fingerprint BLOB NOT NULL) STRICT;
INSERT INTO "vault" VALUES(X'8C0CC17A04942CC4F8E0FE0B302606D3');
CREATE INDEX task_listed ON task (scope, status_time, id, state);
CREATE INDEX task_context ON task (number >> 10, context_hash);
CREATE UNIQUE INDEX task_alias ON task (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX task_unfinished ON task (id) WHERE ended = 0;
CREATE INDEX task_ended ON task (status_time) WHERE ended = 1;
CREATE INDEX key_task ON key (task);
CREATE INDEX config_open ON config (number) WHERE standing = 0;
CREATE INDEX config_stopped ON config (number) WHERE standing = 2;
CREATE INDEX task_with_work ON task (id) WHERE ended = 0 AND parked = 0;
CREATE INDEX task_parked ON task (scope, status_time) WHERE ended = 0 AND parked = 1;
PRAGMA application_id = 1093812596;
PRAGMA user_version = 5;
COMMIT;
