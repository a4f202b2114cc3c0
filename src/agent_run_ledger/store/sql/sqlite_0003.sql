-- Version 3: calls that may not run again, what a call reserved, runs within runs, and budgets.
-- Hashed history: later changes are further migrations, never edits of this file.

-- 0: after a crash nobody repeats the call, its outcome is unknown.
ALTER TABLE in_flight ADD COLUMN repeatable INTEGER NOT NULL DEFAULT 1;

-- The latest record of the run when the call was started.
ALTER TABLE in_flight ADD COLUMN after_record_id INTEGER NOT NULL DEFAULT 0;

-- What the call reserved of its budgets, compact JSON, empty where there is none.
ALTER TABLE in_flight ADD COLUMN reserved BLOB NOT NULL DEFAULT x'';

CREATE INDEX runs_parent ON runs (parent_row_id, row_id) WHERE parent_row_id IS NOT NULL;

-- What a run (tool: '') or a tool in it has used of its budget, its children included: compact JSON.
CREATE TABLE budgets (
    budget_id  INTEGER PRIMARY KEY,
    run_row_id INTEGER NOT NULL REFERENCES runs (row_id),
    tool       TEXT    NOT NULL,
    counters   BLOB    NOT NULL,
    UNIQUE (run_row_id, tool)
);
