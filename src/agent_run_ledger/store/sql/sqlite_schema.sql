-- The tables of the newest schema version, to be read: what the migrations add up to (a test compares the two).
-- Stores are made by the migrations, never by this file. Layout: docs/formats/schema.md.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
);

CREATE TABLE head (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    size     INTEGER NOT NULL CHECK (size >= 0),
    frontier BLOB    NOT NULL CHECK (length(frontier) % 32 = 0),
    epoch    INTEGER NOT NULL CHECK (epoch >= 0),
    time_ms  INTEGER NOT NULL
);

CREATE TABLE events (
    leaf_index INTEGER PRIMARY KEY,
    op_id      BLOB NOT NULL UNIQUE CHECK (length(op_id) = 16),
    envelope   BLOB NOT NULL
);

CREATE TABLE tiles (
    tile_id INTEGER PRIMARY KEY,
    root    BLOB NOT NULL CHECK (length(root) = 32),
    nodes   BLOB NOT NULL CHECK (length(nodes) = 8160)
);

CREATE TABLE runs (
    row_id               INTEGER PRIMARY KEY,
    run_uid              BLOB    NOT NULL UNIQUE CHECK (length(run_uid) = 16),
    run_id               TEXT    NOT NULL UNIQUE,
    state                TEXT    NOT NULL CHECK (state IN
        ('running', 'suspended', 'failed', 'quarantined', 'cancelled', 'completed')),
    reason               TEXT    NOT NULL,
    generation           INTEGER NOT NULL CHECK (generation >= 1),
    attempt              INTEGER NOT NULL CHECK (attempt >= 1),
    created_at_ms        INTEGER NOT NULL,
    updated_at_ms        INTEGER NOT NULL,
    holder               TEXT    NOT NULL,
    parent_row_id        INTEGER REFERENCES runs (row_id),
    start_record_id      INTEGER,
    last_start_record_id INTEGER,
    end_record_id        INTEGER
, forked_from_row_id INTEGER REFERENCES runs (row_id));

CREATE TABLE records (
    record_id     INTEGER PRIMARY KEY,
    run_row_id    INTEGER NOT NULL,
    kind          INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 7),
    scope         BLOB    NOT NULL,
    name          TEXT    NOT NULL,
    fingerprint   BLOB    NOT NULL,
    occurrence    INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    tries         INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    ended_at_ms   INTEGER NOT NULL,
    inputs        BLOB    NOT NULL,
    code          BLOB    NOT NULL,
    value_sha256  BLOB    NOT NULL,
    encoding      INTEGER NOT NULL,
    salt          BLOB,
    payload       BLOB
, usage BLOB);

CREATE UNIQUE INDEX records_result ON records (run_row_id, fingerprint, scope, occurrence) WHERE kind = 2;

CREATE INDEX records_other ON records (run_row_id, record_id) WHERE kind <> 2;

CREATE TABLE in_flight (
    place         INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL,
    scope         BLOB    NOT NULL,
    fingerprint   BLOB    NOT NULL,
    occurrence    INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    tries         INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL
, repeatable INTEGER NOT NULL DEFAULT 1, after_record_id INTEGER NOT NULL DEFAULT 0, reserved BLOB NOT NULL DEFAULT x'');

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are history'); END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are history'); END;

CREATE TRIGGER tiles_no_update BEFORE UPDATE ON tiles
BEGIN SELECT RAISE(ABORT, 'tiles are history'); END;

CREATE TRIGGER tiles_no_delete BEFORE DELETE ON tiles
BEGIN SELECT RAISE(ABORT, 'tiles are history'); END;

CREATE INDEX records_usage ON records (run_row_id, record_id) WHERE usage IS NOT NULL;

CREATE INDEX runs_forked ON runs (forked_from_row_id, row_id) WHERE forked_from_row_id IS NOT NULL;

CREATE TABLE migrations (
    version       INTEGER PRIMARY KEY,
    sha256        BLOB    NOT NULL CHECK (length(sha256) = 32),
    applied_at_ms INTEGER NOT NULL
);

CREATE TRIGGER records_no_delete BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'records are erased, never deleted'); END;

CREATE TRIGGER records_erased_only BEFORE UPDATE ON records
WHEN NEW.salt IS NOT NULL OR NEW.payload IS NOT NULL OR NEW.kind NOT IN (1, 2, 3, 4, 5)
    OR length(NEW.fingerprint) = 32 OR length(NEW.inputs) <> 0 OR length(NEW.code) <> 0 OR length(NEW.value_sha256) <> 0
    OR NEW.record_id IS NOT OLD.record_id OR NEW.run_row_id IS NOT OLD.run_row_id OR NEW.kind IS NOT OLD.kind
    OR NEW.scope IS NOT OLD.scope OR NEW.name IS NOT OLD.name OR NEW.occurrence IS NOT OLD.occurrence
    OR NEW.attempt IS NOT OLD.attempt OR NEW.tries IS NOT OLD.tries OR NEW.started_at_ms IS NOT OLD.started_at_ms
    OR NEW.ended_at_ms IS NOT OLD.ended_at_ms OR NEW.encoding IS NOT OLD.encoding OR NEW.usage IS NOT OLD.usage
BEGIN SELECT RAISE(ABORT, 'a record is history: it can only be erased'); END;

CREATE INDEX runs_parent ON runs (parent_row_id, row_id) WHERE parent_row_id IS NOT NULL;

CREATE TABLE budgets (
    budget_id  INTEGER PRIMARY KEY,
    run_row_id INTEGER NOT NULL REFERENCES runs (row_id),
    tool       TEXT    NOT NULL,
    counters   BLOB    NOT NULL,
    UNIQUE (run_row_id, tool)
);
