-- Every statement that the PostgreSQL store runs, by the names of sqlite_queries.sql: a name that both have takes the
-- same values in the same order and gives the same columns; what SQLite is asked once for each of many ids takes them all
-- here, as one array. Comments inside a statement are part of it; this text is not.

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: begin_read
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: lock_head
SELECT size, frontier, epoch, time_ms FROM head WHERE id = 1 FOR UPDATE;

-- name: end_stalled
-- The session of this user that holds the head, and whose client has said nothing for so many milliseconds.
SELECT pg_terminate_backend(activity.pid) FROM head JOIN pg_stat_activity AS activity ON activity.backend_xid = head.xmax
WHERE head.id = 1 AND activity.usename = current_user AND activity.pid <> pg_backend_pid()
    AND activity.wait_event = 'ClientRead' AND activity.state_change < clock_timestamp() - %s * interval '1 millisecond';

-- name: select_clock
-- And whether the store moves, which a transaction may only believe when it is asked behind the lock.
SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, (SELECT value FROM meta WHERE key = 'move');

-- name: sync_later
SET LOCAL synchronous_commit = off;

-- name: select_head
SELECT size, frontier, epoch, time_ms FROM head WHERE id = 1;

-- name: insert_head
INSERT INTO head (id, size, frontier, epoch, time_ms) VALUES (1, 0, '', 0, %s);

-- name: update_head
UPDATE head SET size = %s, frontier = %s, time_ms = %s WHERE id = 1;

-- name: insert_event
INSERT INTO events (leaf_index, op_id, envelope) VALUES (%s, %s, %s);

-- name: select_event_by_op
SELECT leaf_index FROM events WHERE op_id = %s;

-- name: select_envelopes
SELECT envelope FROM events WHERE leaf_index >= %s AND leaf_index < %s ORDER BY leaf_index;

-- name: select_events
SELECT leaf_index, op_id, envelope FROM events WHERE leaf_index >= %s AND leaf_index < %s ORDER BY leaf_index LIMIT %s;

-- name: insert_tile
INSERT INTO tiles (tile_id, root, nodes) VALUES (%s, %s, %s);

-- name: select_tile
SELECT nodes FROM tiles WHERE tile_id = %s;

-- name: select_tile_roots
SELECT root FROM tiles WHERE tile_id >= %s AND tile_id < %s ORDER BY tile_id;

-- name: select_meta
SELECT key, value FROM meta;

-- name: insert_meta
INSERT INTO meta (key, value) VALUES (%s, %s);

-- name: update_meta
UPDATE meta SET value = %s WHERE key = %s;

-- name: put_meta
INSERT INTO meta (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: insert_migration
INSERT INTO migrations (version, sha256, applied_at_ms) VALUES (%s, %s, %s);

-- name: select_migrations
SELECT version, sha256 FROM migrations ORDER BY version;

-- name: select_migration_times
SELECT version, sha256, applied_at_ms FROM migrations ORDER BY version;

-- name: select_run
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id = %s;

-- name: select_run_by_id
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE run_id = %s;

-- name: select_runs
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id < %s ORDER BY row_id DESC LIMIT %s;

-- name: select_run_row_ids
SELECT row_id FROM runs WHERE row_id < %s ORDER BY row_id DESC LIMIT %s;

-- name: select_runs_in_state
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id < %s AND state = %s ORDER BY row_id DESC LIMIT %s;

-- name: select_queued
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs
WHERE queue = %s AND row_id > %s AND (state = 'running' OR state = 'suspended' AND reason = 'submitted')
ORDER BY row_id LIMIT %s;

-- name: select_waiting
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs
WHERE queue = %s AND row_id > %s AND state = 'suspended' AND reason <> 'submitted' ORDER BY row_id LIMIT %s;

-- name: select_standing
SELECT generation, state, reason, run_uid FROM runs WHERE row_id = %s;

-- name: select_run_uid
SELECT run_uid FROM runs WHERE row_id = %s;

-- name: insert_run
INSERT INTO runs (run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, forked_from_row_id, queue)
VALUES (%s, %s, %s, '', 1, 1, %s, %s, %s, %s, %s, %s) RETURNING row_id;

-- name: update_run
UPDATE runs SET state = %s, reason = %s, generation = %s, attempt = %s, holder = %s, start_record_id = %s,
    last_start_record_id = %s, end_record_id = %s, updated_at_ms = %s
WHERE row_id = %s AND generation = %s AND state = %s;

-- name: insert_record
INSERT INTO records (record_id, run_row_id, kind, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, salt, payload, usage)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: select_record
SELECT record_id, run_row_id, kind, salt, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, payload, usage
FROM records WHERE record_id = %s;

-- name: select_some_records
-- As many of the records that are asked for, from the first on, as are above a number of payload bytes with the last.
SELECT record_id, run_row_id, kind, salt, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, payload, usage
FROM (SELECT record_id, place, coalesce(sum(octet_length(payload)) OVER (
            ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM unnest(%s::bigint[]) WITH ORDINALITY AS asked (record_id, place) JOIN records USING (record_id)
    ) AS sized JOIN records USING (record_id)
WHERE bytes_before < %s ORDER BY place;

-- name: select_some_between
-- The first records of a range: as many as are above a number of payload bytes with the last, and no more than a limit.
SELECT record_id, run_row_id, kind, salt, scope, name, fingerprint, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, inputs, code, value_sha256, encoding, payload, usage
FROM (SELECT record_id, coalesce(sum(octet_length(payload)) OVER (
            ORDER BY record_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM (SELECT record_id, payload FROM records WHERE record_id >= %s AND record_id < %s
            ORDER BY record_id LIMIT %s) AS first_ones
    ) AS sized JOIN records USING (record_id)
WHERE bytes_before < %s ORDER BY record_id;

-- name: select_result_keys
SELECT record_id, scope, name, fingerprint, occurrence, attempt, code, value_sha256, salt IS NULL
FROM records WHERE run_row_id = %s AND kind = 2 ORDER BY record_id;

-- name: select_keys
SELECT record_id, scope, name, fingerprint, occurrence, attempt, code, value_sha256, salt IS NULL, run_row_id
FROM unnest(%s::bigint[]) WITH ORDINALITY AS asked (record_id, place) JOIN records USING (record_id)
WHERE kind = 2 ORDER BY place;

-- name: count_results
SELECT count(*) FROM records WHERE run_row_id = %s AND kind = 2;

-- name: select_result_names
SELECT DISTINCT name FROM records WHERE run_row_id = %s AND kind = 2;

-- name: select_record_names
SELECT record_id, name
FROM unnest(%s::bigint[]) WITH ORDINALITY AS asked (record_id, place) JOIN records USING (record_id)
WHERE salt IS NOT NULL ORDER BY place;

-- name: select_kept
SELECT record_id, run_row_id, kind, NULL, scope, name, ''::bytea, occurrence, attempt, tries,
    started_at_ms, ended_at_ms, ''::bytea, ''::bytea, ''::bytea, encoding, NULL, usage, octet_length(payload)
FROM unnest(%s::bigint[]) WITH ORDINALITY AS asked (record_id, place) JOIN records USING (record_id) ORDER BY place;

-- name: select_erased_names
-- The filler of an erased result begins with a zero byte (its record id is below 2^56), so few others are looked at.
SELECT DISTINCT name FROM records
WHERE run_row_id = %s AND kind = 2 AND fingerprint < '\x01'::bytea AND salt IS NULL;

-- name: select_erasable_result
SELECT 1 FROM records WHERE run_row_id = %s AND kind = 2 AND salt IS NOT NULL LIMIT 1;

-- name: select_erasable_other
SELECT 1 FROM records
WHERE run_row_id = %s AND kind <> 2 AND kind BETWEEN 1 AND 5 AND salt IS NOT NULL LIMIT 1;

-- name: select_erased
SELECT salt IS NULL FROM records WHERE record_id = %s;

-- name: erase_record
UPDATE records SET fingerprint = %s, inputs = '', code = '', value_sha256 = '', salt = NULL, payload = NULL
WHERE record_id = %s AND run_row_id = %s AND kind BETWEEN 1 AND 5 AND salt IS NOT NULL;

-- name: erase_mark
UPDATE in_flight SET fingerprint = '' WHERE place = %s;

-- name: select_usages
SELECT record_id, run_row_id, kind, scope, name, fingerprint, occurrence, attempt, usage, ended_at_ms
FROM records WHERE usage IS NOT NULL AND run_row_id = %s AND record_id > %s ORDER BY record_id LIMIT %s;

-- name: select_forks
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE forked_from_row_id = %s ORDER BY row_id;

-- name: select_result_ids
SELECT record_id FROM records
WHERE run_row_id = %s AND kind = 2 AND record_id > %s ORDER BY record_id;

-- name: select_other_ids
SELECT record_id FROM records
WHERE run_row_id = %s AND kind <> 2 AND record_id > %s AND (1::bigint << kind::int) & %s <> 0 ORDER BY record_id;

-- name: put_in_flight
INSERT INTO in_flight (place, name, scope, fingerprint, occurrence, attempt, tries, generation,
    started_at_ms, repeatable, after_record_id, reserved)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (place) DO UPDATE SET name = excluded.name, scope = excluded.scope, fingerprint = excluded.fingerprint,
    occurrence = excluded.occurrence, attempt = excluded.attempt, tries = excluded.tries,
    generation = excluded.generation, started_at_ms = excluded.started_at_ms, repeatable = excluded.repeatable,
    after_record_id = excluded.after_record_id, reserved = excluded.reserved;

-- name: select_budgets
SELECT tool, counters FROM budgets WHERE run_row_id = %s ORDER BY tool;

-- name: put_budget
INSERT INTO budgets (run_row_id, tool, counters) VALUES (%s, %s, %s)
ON CONFLICT (run_row_id, tool) DO UPDATE SET counters = excluded.counters;

-- name: select_children
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE parent_row_id = %s ORDER BY row_id;

-- name: clear_in_flight
DELETE FROM in_flight WHERE place = %s;

-- name: select_in_flight
SELECT place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms,
    repeatable, after_record_id, reserved
FROM in_flight WHERE place >= %s AND place < %s ORDER BY place;

-- name: select_runs_in_flight
SELECT run_id, state, min(started_at_ms) FROM in_flight JOIN runs ON row_id = place >> 16
GROUP BY row_id ORDER BY min(started_at_ms), row_id;

-- name: select_orphan_marks
SELECT place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms,
    repeatable, after_record_id, reserved
FROM in_flight WHERE NOT EXISTS (SELECT 1 FROM runs WHERE row_id = place >> 16) ORDER BY place LIMIT %s;

-- name: count_states
SELECT state, count(*) FROM runs GROUP BY state ORDER BY state;

-- name: select_schema
-- Facts of the catalog; and of what only PostgreSQL's own text tells, the digest of that text without casts, parentheses
-- and spaces, in which its versions differ. The session's own settings say how the text is written. What no table of ours has (a rule, row level security, a table that inherits,
-- another owner than the schema's) is said only where it is there.
SELECT 'table', c.relname::text, concat(CASE WHEN c.relpersistence <> 'p' THEN ' not logged' END,
        CASE WHEN c.relrowsecurity THEN ' row security' END, CASE WHEN c.relowner <> n.nspowner THEN ' of another owner' END)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'agent_run_ledger' AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
UNION ALL SELECT 'rule', c.relname || '.' || r.rulename, ''
    FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
    WHERE c.relnamespace = 'agent_run_ledger'::regnamespace AND c.relkind = 'r'
UNION ALL SELECT 'heir', h.inhrelid::regclass::text, 'of ' || c.relname
    FROM pg_catalog.pg_inherits AS h JOIN pg_catalog.pg_class AS c ON c.oid = h.inhparent
    WHERE c.relnamespace = 'agent_run_ledger'::regnamespace AND c.relkind = 'r'
UNION ALL SELECT 'column', c.relname || '.' || a.attname,
        pg_catalog.format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
        || CASE WHEN o.collname <> 'C' THEN ' collate ' || o.collname ELSE '' END
        || CASE WHEN a.attidentity <> '' THEN ' identity' ELSE '' END
        || coalesce(' default ' || regexp_replace(pg_catalog.pg_get_expr(d.adbin, d.adrelid),
            '::[a-z]+|[()[:space:]]', '', 'g'), '')
    FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
    LEFT JOIN pg_catalog.pg_collation AS o ON o.oid = a.attcollation
    LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'agent_run_ledger'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'index', i.relname::text, CASE WHEN x.indisunique THEN 'unique ' ELSE '' END
        || CASE WHEN x.indisvalid AND x.indisready THEN '' ELSE 'invalid ' END
        || left(encode(sha256(convert_to(regexp_replace(pg_catalog.pg_get_indexdef(x.indexrelid),
            '::[a-z]+([[][]])?|[()[:space:]]', '', 'g'), 'UTF8')), 'hex'), 32)
    FROM pg_catalog.pg_index AS x JOIN pg_catalog.pg_class AS i ON i.oid = x.indexrelid
    WHERE i.relnamespace = 'agent_run_ledger'::regnamespace
UNION ALL SELECT 'constraint', c.relname || '.' || k.conname,
        k.contype::text || CASE WHEN k.convalidated THEN ' ' ELSE ' invalid ' END
        || left(encode(sha256(convert_to(regexp_replace(pg_catalog.pg_get_constraintdef(k.oid),
            '::[a-z]+([[][]])?|[()[:space:]]', '', 'g'), 'UTF8')), 'hex'), 32)
    FROM pg_catalog.pg_constraint AS k JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
    WHERE c.relnamespace = 'agent_run_ledger'::regnamespace AND k.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL SELECT 'trigger', c.relname || '.' || t.tgname,
        t.tgenabled::text || ' ' || t.tgtype || ' ' || n.nspname || '.' || p.proname || ' '
        || left(encode(sha256(convert_to(regexp_replace(pg_catalog.pg_get_triggerdef(t.oid),
            '::[a-z]+([[][]])?|[()[:space:]]', '', 'g'), 'UTF8')), 'hex'), 32)
    FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    WHERE c.relnamespace = 'agent_run_ledger'::regnamespace AND NOT t.tgisinternal
UNION ALL SELECT 'trigger', c.relname || '.' || k.conname, 'of a constraint is off'
    FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_constraint AS k ON k.oid = t.tgconstraint
    JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'agent_run_ledger'::regnamespace AND t.tgisinternal AND t.tgenabled <> 'O'
UNION ALL SELECT 'function', p.proname::text, concat(encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'),
        CASE WHEN l.lanname <> 'plpgsql' THEN ' in ' || l.lanname END,
        CASE WHEN p.prosecdef OR p.proconfig IS NOT NULL THEN ' with settings of its own' END,
        CASE WHEN p.proowner <> n.nspowner THEN ' of another owner' END)
    FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
    WHERE n.nspname = 'agent_run_ledger';

-- name: select_session
SELECT pg_catalog.pg_backend_pid(), current_setting('synchronous_commit'), current_setting('search_path'),
    current_setting('server_encoding'), current_setting('server_version_num')::bigint, pg_catalog.pg_is_in_recovery(),
    current_setting('transaction_read_only'),
    -- A session that is idle for long is none that is over: locks of live runs are held by one. Older servers end none.
    CASE WHEN current_setting('server_version_num')::bigint >= 140000
        THEN pg_catalog.set_config('idle_session_timeout', '0', FALSE) END;

-- name: select_known
-- What is there: whether a schema of our name, whether our table of what the store says of itself.
SELECT to_regnamespace('agent_run_ledger') IS NOT NULL, to_regclass('agent_run_ledger.meta') IS NOT NULL,
    to_regclass('agent_run_ledger.migrations') IS NOT NULL;

-- name: lock_making
-- Who makes a store in this database keeps others from it until its transaction ends: "arl1" as a number.
SELECT pg_catalog.pg_advisory_xact_lock(1634886705);

-- name: announce_run
SELECT pg_catalog.pg_notify('agent_run_ledger', '');

-- name: listen
LISTEN agent_run_ledger;

-- name: try_lock_run
SELECT pg_catalog.pg_try_advisory_lock(%s);

-- name: unlock_run
SELECT pg_catalog.pg_advisory_unlock(%s);

-- name: select_runs_locked
SELECT classid::bigint << 32 | objid::bigint FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND classid::bigint << 32 | objid::bigint = ANY (%s);

-- name: vacuum_erased
VACUUM records, in_flight;
