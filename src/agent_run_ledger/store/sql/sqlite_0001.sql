-- Schema version 1. Hashed history: later changes are migrations, never edits of this file.
-- Layout: docs/formats/schema.md.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
);

-- One row: the size of the log and the roots of its complete subtrees (32 bytes each, largest first).
CREATE TABLE head (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    size     INTEGER NOT NULL CHECK (size >= 0),
    frontier BLOB    NOT NULL CHECK (length(frontier) % 32 = 0),
    epoch    INTEGER NOT NULL CHECK (epoch >= 0),
    time_ms  INTEGER NOT NULL
);

-- One row per committed transaction; leaf_index is the 0-based place in the log.
CREATE TABLE events (
    leaf_index INTEGER PRIMARY KEY,
    op_id      BLOB NOT NULL UNIQUE CHECK (length(op_id) = 16),
    envelope   BLOB NOT NULL
);

-- One row per 256 leaves of a level: tile_id = level << 40 | index, its root, and its 255 inner nodes in heap order.
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
);

-- record_id = leaf_index << 16 | position of the change in the leaf. salt and payload are what an erasure deletes.
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
);

-- A call is recorded once: the only index in the append path besides op_id, random only within one run.
CREATE UNIQUE INDEX records_result ON records (run_row_id, fingerprint, scope, occurrence) WHERE kind = 2;

-- Everything that is not a result is rare: this index finds it by run.
CREATE INDEX records_other ON records (run_row_id, record_id) WHERE kind <> 2;

-- place = run_row_id << 16 | lane.
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
);

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are history'); END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are history'); END;

CREATE TRIGGER tiles_no_update BEFORE UPDATE ON tiles
BEGIN SELECT RAISE(ABORT, 'tiles are history'); END;

CREATE TRIGGER tiles_no_delete BEFORE DELETE ON tiles
BEGIN SELECT RAISE(ABORT, 'tiles are history'); END;
