-- Every statement that the SQLite store runs. Comments inside a statement are part of it; this text is not.

-- name: begin
BEGIN IMMEDIATE;

-- name: begin_read
BEGIN;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: sync_full
PRAGMA synchronous = FULL;

-- name: sync_normal
PRAGMA synchronous = NORMAL;

-- name: empty_wal
PRAGMA wal_checkpoint(TRUNCATE);

-- name: touch
PRAGMA application_id = 0x61726C31;

-- name: select_head
SELECT size, frontier, epoch, time_ms FROM head WHERE id = 1;

-- name: insert_head
INSERT INTO head (id, size, frontier, epoch, time_ms) VALUES (1, 0, x'', 0, ?);

-- name: update_head
UPDATE head SET size = ?, frontier = ?, time_ms = ? WHERE id = 1;

-- name: insert_event
INSERT INTO events (leaf_index, op_id, envelope) VALUES (?, ?, ?);

-- name: select_event_by_op
SELECT leaf_index FROM events WHERE op_id = ?;

-- name: select_envelopes
SELECT envelope FROM events WHERE leaf_index >= ? AND leaf_index < ? ORDER BY leaf_index;

-- name: select_events
SELECT leaf_index, op_id, envelope FROM events WHERE leaf_index >= ? AND leaf_index < ? ORDER BY leaf_index LIMIT ?;

-- name: insert_tile
INSERT INTO tiles (tile_id, root, nodes) VALUES (?, ?, ?);

-- name: select_tile
SELECT nodes FROM tiles WHERE tile_id = ?;

-- name: select_tile_roots
SELECT root FROM tiles WHERE tile_id >= ? AND tile_id < ? ORDER BY tile_id;

-- name: select_meta
SELECT key, value FROM meta;

-- name: insert_meta
INSERT INTO meta (key, value) VALUES (?, ?);

-- name: update_meta
UPDATE meta SET value = ? WHERE key = ?;

-- name: put_meta
INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?);

-- name: select_move
SELECT value FROM meta WHERE key = 'move';

-- name: insert_migration
INSERT INTO migrations (version, sha256, applied_at_ms) VALUES (?, ?, ?);

-- name: select_migrations
SELECT version, sha256 FROM migrations ORDER BY version;

-- name: select_migration_times
SELECT version, sha256, applied_at_ms FROM migrations ORDER BY version;

-- name: select_run
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id = ?;

-- name: select_run_by_id
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE run_id = ?;

-- name: select_runs
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id < ? ORDER BY row_id DESC LIMIT ?;

-- name: select_run_row_ids
SELECT row_id FROM runs WHERE row_id < ? ORDER BY row_id DESC LIMIT ?;

-- name: select_runs_in_state
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id < ? AND state = ? ORDER BY row_id DESC LIMIT ?;

-- name: select_queued
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs INDEXED BY runs_queued
WHERE queue = ? AND row_id > ? AND (state = 'running' OR state = 'suspended' AND reason = 'submitted')
ORDER BY row_id LIMIT ?;

-- name: select_waiting
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs INDEXED BY runs_waiting
WHERE queue = ? AND row_id > ? AND state = 'suspended' AND reason <> 'submitted' ORDER BY row_id LIMIT ?;

-- name: select_standing
SELECT generation, state, reason, run_uid FROM runs WHERE row_id = ?;

-- name: select_run_uid
SELECT run_uid FROM runs WHERE row_id = ?;

-- name: insert_run
INSERT INTO runs (run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, forked_from_row_id, queue)
VALUES (?, ?, ?, '', 1, 1, ?, ?, ?, ?, ?, ?);

-- name: update_run
UPDATE runs SET state = ?, reason = ?, generation = ?, attempt = ?, holder = ?, start_record_id = ?,
    last_start_record_id = ?, end_record_id = ?, updated_at_ms = ?
WHERE row_id = ? AND generation = ? AND state = ?;

-- name: insert_record
INSERT INTO records (record_id, run_row_id, kind, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, salt, payload, usage)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: select_record
SELECT record_id, run_row_id, kind, salt, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, payload, usage
FROM records WHERE record_id = ?;

-- name: select_records_between
SELECT record_id, run_row_id, kind, salt, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, payload, usage
FROM records WHERE record_id >= ? AND record_id < ? ORDER BY record_id;

-- name: select_result_keys
SELECT record_id, scope, name, fingerprint, occurrence, attempt, code, value_sha256, salt IS NULL
FROM records INDEXED BY records_result WHERE run_row_id = ? AND kind = 2 ORDER BY record_id;

-- name: select_keys
SELECT record_id, scope, name, fingerprint, occurrence, attempt, code, value_sha256, salt IS NULL, run_row_id
FROM records WHERE record_id = ? AND kind = 2;

-- name: count_results
SELECT count(*) FROM records INDEXED BY records_result WHERE run_row_id = ? AND kind = 2;

-- name: select_result_names
SELECT DISTINCT name FROM records INDEXED BY records_result WHERE run_row_id = ? AND kind = 2;

-- name: select_record_names
SELECT record_id, name FROM records WHERE record_id = ? AND salt IS NOT NULL;

-- name: select_kept
SELECT record_id, run_row_id, kind, NULL, scope, name, x'', occurrence, attempt, tries,
    started_at_ms, ended_at_ms, x'', x'', x'', encoding, NULL, usage, length(payload)
FROM records WHERE record_id = ?;

-- name: select_erased_names
-- The filler of an erased result begins with a zero byte (its record id is below 2^56), so few others are looked at.
SELECT DISTINCT name FROM records INDEXED BY records_result
WHERE run_row_id = ? AND kind = 2 AND fingerprint < x'01' AND salt IS NULL;

-- name: select_erasable_result
SELECT 1 FROM records INDEXED BY records_result WHERE run_row_id = ? AND kind = 2 AND salt IS NOT NULL LIMIT 1;

-- name: select_erasable_other
SELECT 1 FROM records INDEXED BY records_other
WHERE run_row_id = ? AND kind <> 2 AND kind BETWEEN 1 AND 5 AND salt IS NOT NULL LIMIT 1;

-- name: compact
VACUUM;

-- name: select_erased
SELECT salt IS NULL FROM records WHERE record_id = ?;

-- name: erase_record
UPDATE records SET fingerprint = ?, inputs = x'', code = x'', value_sha256 = x'', salt = NULL, payload = NULL
WHERE record_id = ? AND run_row_id = ? AND kind BETWEEN 1 AND 5 AND salt IS NOT NULL;

-- name: erase_mark
UPDATE in_flight SET fingerprint = x'' WHERE place = ?;

-- name: select_usages
SELECT record_id, run_row_id, kind, scope, name, fingerprint, occurrence, attempt, usage, ended_at_ms
FROM records INDEXED BY records_usage WHERE usage IS NOT NULL AND run_row_id = ? AND record_id > ? ORDER BY record_id LIMIT ?;

-- name: select_forks
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs INDEXED BY runs_forked WHERE forked_from_row_id = ? ORDER BY row_id;

-- name: select_result_ids
SELECT record_id FROM records INDEXED BY records_result
WHERE run_row_id = ? AND kind = 2 AND record_id > ? ORDER BY record_id;

-- name: select_other_ids
SELECT record_id FROM records INDEXED BY records_other
WHERE run_row_id = ? AND kind <> 2 AND record_id > ? AND (1 << kind) & ? ORDER BY record_id;

-- name: put_in_flight
INSERT OR REPLACE INTO in_flight (place, name, scope, fingerprint, occurrence, attempt, tries, generation,
    started_at_ms, repeatable, after_record_id, reserved)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: select_budgets
SELECT tool, counters FROM budgets WHERE run_row_id = ? ORDER BY tool;

-- name: put_budget
INSERT INTO budgets (run_row_id, tool, counters) VALUES (?, ?, ?)
ON CONFLICT (run_row_id, tool) DO UPDATE SET counters = excluded.counters;

-- name: select_children
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs INDEXED BY runs_parent WHERE parent_row_id = ? ORDER BY row_id;

-- name: clear_in_flight
DELETE FROM in_flight WHERE place = ?;

-- name: select_in_flight
SELECT place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms,
    repeatable, after_record_id, reserved
FROM in_flight WHERE place >= ? AND place < ? ORDER BY place;

-- name: select_runs_in_flight
SELECT run_id, state, min(started_at_ms) FROM in_flight JOIN runs ON row_id = place >> 16
GROUP BY row_id ORDER BY min(started_at_ms), row_id;

-- name: select_orphan_marks
SELECT place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms,
    repeatable, after_record_id, reserved
FROM in_flight WHERE NOT EXISTS (SELECT 1 FROM runs WHERE row_id = place >> 16) ORDER BY place LIMIT ?;

-- name: count_indexed
SELECT name, ncell FROM dbstat('main', 1) WHERE name IN ('records_result', 'records_other');

-- name: count_in_flight
SELECT count(*) FROM in_flight;

-- name: count_kinds
SELECT kind, count(*) FROM records INDEXED BY records_other WHERE kind <> 2 GROUP BY kind ORDER BY kind;

-- name: count_states
SELECT state, count(*) FROM runs GROUP BY state ORDER BY state;

-- name: select_oldest_kept
SELECT runs.run_id, runs.updated_at_ms FROM runs JOIN records ON records.record_id = runs.start_record_id
WHERE runs.state = 'completed' AND records.salt IS NOT NULL ORDER BY runs.row_id LIMIT 1;

-- name: select_sizes
SELECT name, pgsize, unused FROM dbstat('main', 1) ORDER BY pgsize DESC, name;

-- name: select_schema
SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~';

-- name: create_as
PRAGMA application_id = 0x61726C31;
PRAGMA user_version = 4;
