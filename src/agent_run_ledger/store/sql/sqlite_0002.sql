-- Version 2: what a call used, forks, and records that nothing but an erasure changes.
-- Hashed history: later changes are further migrations, never edits of this file.

-- Tokens and cost of a call, compact JSON (docs/formats/record.md); the one part of a record that an erasure keeps.
ALTER TABLE records ADD COLUMN usage BLOB;

CREATE INDEX records_usage ON records (run_row_id, record_id) WHERE usage IS NOT NULL;

ALTER TABLE runs ADD COLUMN forked_from_row_id INTEGER REFERENCES runs (row_id);

CREATE INDEX runs_forked ON runs (forked_from_row_id, row_id) WHERE forked_from_row_id IS NOT NULL;

-- One row per migration that made this file what it is, with the digest of its text.
CREATE TABLE migrations (
    version       INTEGER PRIMARY KEY,
    sha256        BLOB    NOT NULL CHECK (length(sha256) = 32),
    applied_at_ms INTEGER NOT NULL
);

CREATE TRIGGER records_no_delete BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'records are erased, never deleted'); END;

-- An erased record keeps its place, its name, its times and what it used.
CREATE TRIGGER records_erased_only BEFORE UPDATE ON records
WHEN NEW.salt IS NOT NULL OR NEW.payload IS NOT NULL OR NEW.kind NOT IN (1, 2, 3, 4, 5)
    OR length(NEW.fingerprint) = 32 OR length(NEW.inputs) <> 0 OR length(NEW.code) <> 0 OR length(NEW.value_sha256) <> 0
    OR NEW.record_id IS NOT OLD.record_id OR NEW.run_row_id IS NOT OLD.run_row_id OR NEW.kind IS NOT OLD.kind
    OR NEW.scope IS NOT OLD.scope OR NEW.name IS NOT OLD.name OR NEW.occurrence IS NOT OLD.occurrence
    OR NEW.attempt IS NOT OLD.attempt OR NEW.tries IS NOT OLD.tries OR NEW.started_at_ms IS NOT OLD.started_at_ms
    OR NEW.ended_at_ms IS NOT OLD.ended_at_ms OR NEW.encoding IS NOT OLD.encoding OR NEW.usage IS NOT OLD.usage
BEGIN SELECT RAISE(ABORT, 'a record is history: it can only be erased'); END;
