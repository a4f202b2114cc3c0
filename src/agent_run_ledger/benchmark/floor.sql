-- The bare floor: one table with an integer key, and one row per transaction.

-- name: wal
PRAGMA journal_mode = WAL;

-- name: delete
PRAGMA journal_mode = DELETE;

-- name: full
PRAGMA synchronous = FULL;

-- name: create
CREATE TABLE IF NOT EXISTS steps (i INTEGER PRIMARY KEY, result TEXT NOT NULL);

-- name: begin
BEGIN IMMEDIATE;

-- name: insert
INSERT INTO steps (i, result) VALUES (?, ?);

-- name: commit
COMMIT;

-- name: select
SELECT result FROM steps WHERE i = ?;

-- name: select_all
SELECT i, result FROM steps ORDER BY i;
