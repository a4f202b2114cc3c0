-- The bare work that a step at a server is compared with: one row and one commit.

-- name: create
CREATE TABLE bare (id BIGINT PRIMARY KEY, content TEXT NOT NULL);

-- name: insert
INSERT INTO bare (id, content) VALUES (%s, %s);

-- name: dead_heads
SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
WHERE schemaname = 'agent_run_ledger' AND relname = 'head';

-- name: head_size
SELECT size FROM agent_run_ledger.head;

-- name: flush_statistics
SELECT pg_stat_force_next_flush();

-- name: copy_pending
INSERT INTO agent_run_ledger.runs (run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    start_record_id, last_start_record_id, end_record_id, queue)
SELECT decode(md5(number::text), 'hex'), 'copy-' || number, state, reason, generation, attempt, created_at_ms, updated_at_ms,
    holder, start_record_id, last_start_record_id, end_record_id, queue
FROM agent_run_ledger.runs, generate_series(1, %s) AS number WHERE run_id = 'pattern';

-- name: analyze
ANALYZE agent_run_ledger.runs;
