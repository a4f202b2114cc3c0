-- What `arl migrate` reads from a PostgreSQL store and writes into one, by the names of sqlite_move.sql: each takes the
-- same values in the same order and gives the same columns. Comments inside a statement are part of it.

-- name: page_events
SELECT leaf_index, op_id, envelope
FROM (SELECT leaf_index, coalesce(sum(octet_length(envelope)) OVER (
            ORDER BY leaf_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM (SELECT leaf_index, envelope FROM events WHERE leaf_index > %s ORDER BY leaf_index LIMIT %s) AS few
    ) AS sized JOIN events USING (leaf_index)
WHERE bytes_before < %s ORDER BY leaf_index;

-- name: last_events
SELECT max(leaf_index) FROM events;

-- name: fill_events
INSERT INTO events (leaf_index, op_id, envelope)
VALUES (%s, %s, %s);

-- name: page_tiles
SELECT tile_id, root, nodes
FROM tiles WHERE tile_id > %s ORDER BY tile_id LIMIT %s;

-- name: last_tiles
SELECT max(tile_id) FROM tiles;

-- name: fill_tiles
INSERT INTO tiles (tile_id, root, nodes)
VALUES (%s, %s, %s);

-- name: page_runs
SELECT row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue
FROM runs WHERE row_id > %s ORDER BY row_id LIMIT %s;

-- name: last_runs
SELECT max(row_id) FROM runs;

-- name: fill_runs
INSERT INTO runs (row_id, run_uid, run_id, state, reason, generation, attempt, created_at_ms, updated_at_ms, holder,
    parent_row_id, start_record_id, last_start_record_id, end_record_id, forked_from_row_id, queue)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: page_records
SELECT record_id, run_row_id, kind, scope, name, fingerprint, occurrence, attempt, tries, started_at_ms, ended_at_ms,
    inputs, code, value_sha256, encoding, salt, payload, usage
FROM (SELECT record_id, coalesce(sum(octet_length(payload)) OVER (
            ORDER BY record_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM (SELECT record_id, payload FROM records WHERE record_id > %s ORDER BY record_id LIMIT %s) AS few
    ) AS sized JOIN records USING (record_id)
WHERE bytes_before < %s ORDER BY record_id;

-- name: last_records
SELECT max(record_id) FROM records;

-- name: fill_records
INSERT INTO records (record_id, run_row_id, kind, scope, name, fingerprint, occurrence, attempt, tries, started_at_ms,
    ended_at_ms, inputs, code, value_sha256, encoding, salt, payload, usage)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: page_in_flight
SELECT place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms, repeatable,
    after_record_id, reserved
FROM in_flight WHERE place > %s ORDER BY place LIMIT %s;

-- name: last_in_flight
SELECT max(place) FROM in_flight;

-- name: fill_in_flight
INSERT INTO in_flight (place, name, scope, fingerprint, occurrence, attempt, tries, generation, started_at_ms,
    repeatable, after_record_id, reserved)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s);

-- name: page_budgets
SELECT budget_id, run_row_id, tool, counters
FROM budgets WHERE budget_id > %s ORDER BY budget_id LIMIT %s;

-- name: last_budgets
SELECT max(budget_id) FROM budgets;

-- name: fill_budgets
INSERT INTO budgets (budget_id, run_row_id, tool, counters)
VALUES (%s, %s, %s, %s);

-- name: page_actions
SELECT action_row_id, action_id, action_key, state, epoch, floor, generation, requester, executor, audience,
    target_class, request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id, claim_key,
    worker, claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, in_doubt_since_ms, rebuilt,
    more, proposed_at_ms, changed_at_ms
FROM actions WHERE action_row_id > %s ORDER BY action_row_id LIMIT %s;

-- name: last_actions
SELECT max(action_row_id) FROM actions;

-- name: fill_actions
INSERT INTO actions (action_row_id, action_id, action_key, state, epoch, floor, generation, requester, executor,
    audience, target_class, request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id,
    claim_key, worker, claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out,
    in_doubt_since_ms, rebuilt, more, proposed_at_ms, changed_at_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
    %s, %s);

-- name: page_approvals
SELECT approval_row_id, approval_id, action_row_id, principal, epoch, nonce, statement_sha256
FROM approvals WHERE approval_row_id > %s ORDER BY approval_row_id LIMIT %s;

-- name: last_approvals
SELECT max(approval_row_id) FROM approvals;

-- name: fill_approvals
INSERT INTO approvals (approval_row_id, approval_id, action_row_id, principal, epoch, nonce, statement_sha256)
VALUES (%s, %s, %s, %s, %s, %s, %s);

-- name: page_requests
SELECT action_row_id, body
FROM (SELECT action_row_id, coalesce(sum(octet_length(body)) OVER (
            ORDER BY action_row_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM (SELECT action_row_id, body FROM requests WHERE action_row_id > %s ORDER BY action_row_id LIMIT %s) AS few
    ) AS sized JOIN requests USING (action_row_id)
WHERE bytes_before < %s ORDER BY action_row_id;

-- name: last_requests
SELECT max(action_row_id) FROM requests;

-- name: fill_requests
INSERT INTO requests (action_row_id, body)
VALUES (%s, %s);

-- name: page_answers
SELECT answer_row_id, action_row_id, evidence_id, status, body
FROM (SELECT answer_row_id, coalesce(sum(octet_length(body)) OVER (
            ORDER BY answer_row_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM (SELECT answer_row_id, body FROM answers WHERE answer_row_id > %s ORDER BY answer_row_id LIMIT %s) AS few
    ) AS sized JOIN answers USING (answer_row_id)
WHERE bytes_before < %s ORDER BY answer_row_id;

-- name: last_answers
SELECT max(answer_row_id) FROM answers;

-- name: fill_answers
INSERT INTO answers (answer_row_id, action_row_id, evidence_id, status, body)
VALUES (%s, %s, %s, %s, %s);

-- name: page_action_records
SELECT record_id, action_row_id, salt, payload
FROM (SELECT record_id, coalesce(sum(octet_length(payload)) OVER (
            ORDER BY record_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes_before
        FROM (SELECT record_id, payload FROM action_records WHERE record_id > %s ORDER BY record_id LIMIT %s) AS few
    ) AS sized JOIN action_records USING (record_id)
WHERE bytes_before < %s ORDER BY record_id;

-- name: last_action_records
SELECT max(record_id) FROM action_records;

-- name: fill_action_records
INSERT INTO action_records (record_id, action_row_id, salt, payload)
VALUES (%s, %s, %s, %s);

-- name: page_effect_time
SELECT id, wall_ms, uptime_ms, boot
FROM effect_time WHERE id > %s ORDER BY id LIMIT %s;

-- name: last_effect_time
SELECT max(id) FROM effect_time;

-- name: fill_effect_time
INSERT INTO effect_time (id, wall_ms, uptime_ms, boot)
VALUES (%s, %s, %s, %s);

-- name: page_clock_corrections
SELECT record_id, later_ms, salt, payload
FROM clock_corrections WHERE record_id > %s ORDER BY record_id LIMIT %s;

-- name: last_clock_corrections
SELECT max(record_id) FROM clock_corrections;

-- name: fill_clock_corrections
INSERT INTO clock_corrections (record_id, later_ms, salt, payload)
VALUES (%s, %s, %s, %s);

-- name: page_trust_changes
SELECT record_id, sha256, serial, salt, payload
FROM trust_changes WHERE record_id > %s ORDER BY record_id LIMIT %s;

-- name: last_trust_changes
SELECT max(record_id) FROM trust_changes;

-- name: fill_trust_changes
INSERT INTO trust_changes (record_id, sha256, serial, salt, payload)
VALUES (%s, %s, %s, %s, %s);

-- name: count_rows
SELECT (SELECT count(*) FROM events) +
    (SELECT count(*) FROM tiles) +
    (SELECT count(*) FROM runs) +
    (SELECT count(*) FROM records) +
    (SELECT count(*) FROM in_flight) +
    (SELECT count(*) FROM budgets) +
    (SELECT count(*) FROM actions) +
    (SELECT count(*) FROM approvals) +
    (SELECT count(*) FROM requests) +
    (SELECT count(*) FROM answers) +
    (SELECT count(*) FROM action_records) +
    (SELECT count(*) FROM effect_time) +
    (SELECT count(*) FROM clock_corrections) +
    (SELECT count(*) FROM trust_changes);

-- name: select_running
SELECT run_id FROM runs WHERE state = 'running' ORDER BY row_id;

-- name: put_head
UPDATE head SET size = %s, frontier = %s, epoch = %s, time_ms = %s WHERE id = 1;

-- name: advance_runs
SELECT setval(pg_get_serial_sequence('agent_run_ledger.runs', 'row_id'),
    coalesce(max(row_id), 1), max(row_id) IS NOT NULL) FROM runs;

-- name: advance_budgets
SELECT setval(pg_get_serial_sequence('agent_run_ledger.budgets', 'budget_id'),
    coalesce(max(budget_id), 1), max(budget_id) IS NOT NULL) FROM budgets;

-- name: advance_actions
SELECT setval(pg_get_serial_sequence('agent_run_ledger.actions', 'action_row_id'),
    coalesce(max(action_row_id), 1), max(action_row_id) IS NOT NULL) FROM actions;

-- name: advance_approvals
SELECT setval(pg_get_serial_sequence('agent_run_ledger.approvals', 'approval_row_id'),
    coalesce(max(approval_row_id), 1), max(approval_row_id) IS NOT NULL) FROM approvals;

-- name: advance_answers
SELECT setval(pg_get_serial_sequence('agent_run_ledger.answers', 'answer_row_id'),
    coalesce(max(answer_row_id), 1), max(answer_row_id) IS NOT NULL) FROM answers;

-- name: let_any_begin
-- An action that comes from another store is in whatever state it has come to. Undone before the transaction ends.
ALTER TABLE actions DISABLE TRIGGER actions_begin;

-- name: let_none_begin
ALTER TABLE actions ENABLE TRIGGER actions_begin;

-- name: discard
DROP SCHEMA agent_run_ledger CASCADE;
