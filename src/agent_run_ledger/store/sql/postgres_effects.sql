-- Every statement that the PostgreSQL store runs for effects, by the names of sqlite_effects.sql: each takes the same
-- values in the same order and gives the same columns. Comments inside a statement are part of it; this text is not.

-- name: select_members
SELECT action_id, action_key, state, actions.epoch, floor, generation, requester, executor, audience, target_class,
    request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id, claim_key, worker,
    claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, in_doubt_since_ms, rebuilt, more,
    action_row_id, proposed_at_ms, changed_at_ms,
    approval_row_id, approval_id, principal, approvals.epoch, nonce, statement_sha256
FROM actions LEFT JOIN approvals USING (action_row_id) WHERE action_key = %s;

-- name: select_members_of
SELECT action_id, action_key, state, actions.epoch, floor, generation, requester, executor, audience, target_class,
    request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id, claim_key, worker,
    claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, in_doubt_since_ms, rebuilt, more,
    action_row_id, proposed_at_ms, changed_at_ms,
    approval_row_id, approval_id, principal, approvals.epoch, nonce, statement_sha256
FROM actions LEFT JOIN approvals USING (action_row_id)
WHERE action_key = (SELECT action_key FROM actions WHERE action_id = %s);

-- name: select_action
SELECT action_id, action_key, state, actions.epoch, floor, generation, requester, executor, audience, target_class,
    request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id, claim_key, worker,
    claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, in_doubt_since_ms, rebuilt, more,
    action_row_id, proposed_at_ms, changed_at_ms,
    approval_row_id, approval_id, principal, approvals.epoch, nonce, statement_sha256
FROM actions LEFT JOIN approvals USING (action_row_id) WHERE action_id = %s;

-- name: select_actions
SELECT action_id, action_key, state, actions.epoch, floor, generation, requester, executor, audience, target_class,
    request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id, claim_key, worker,
    claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, in_doubt_since_ms, rebuilt, more,
    action_row_id, proposed_at_ms, changed_at_ms,
    approval_row_id, approval_id, principal, approvals.epoch, nonce, statement_sha256
FROM actions LEFT JOIN approvals USING (action_row_id)
WHERE action_row_id IN (SELECT value::bigint FROM json_array_elements_text(%s::json));

-- name: select_row_ids_in_state
SELECT action_row_id FROM actions WHERE state = %s AND action_row_id > %s ORDER BY action_row_id LIMIT %s;

-- name: select_oldest_proposed
SELECT proposed_at_ms, action_row_id FROM actions WHERE state = %s ORDER BY action_row_id LIMIT %s;

-- name: select_oldest_claimed
SELECT claimed_ms, action_row_id FROM actions WHERE state = %s ORDER BY claimed_ms, action_row_id LIMIT %s;

-- name: select_oldest_in_doubt
SELECT in_doubt_since_ms, action_row_id FROM actions WHERE state = %s
ORDER BY in_doubt_since_ms, action_row_id LIMIT %s;

-- name: select_stranded
SELECT claimed_ms, action_row_id FROM actions
WHERE state = %s AND coalesce(permit_expires_ms, dispatch_before_ms) <= %s ORDER BY claimed_ms, action_row_id LIMIT %s;

-- name: count_stranded
SELECT count(*) FROM actions WHERE state = %s AND coalesce(permit_expires_ms, dispatch_before_ms) <= %s;

-- name: select_oldest_waiting
SELECT proposed_at_ms FROM actions WHERE state = 'proposed' AND dispatch_before_ms > %s ORDER BY action_row_id LIMIT 1;

-- name: select_ids_between
SELECT action_id FROM actions WHERE action_id >= %s AND action_id <= %s ORDER BY action_id LIMIT %s;

-- name: select_keys_after
SELECT DISTINCT action_key FROM actions WHERE action_key > %s ORDER BY action_key LIMIT %s;

-- name: count_actions
SELECT state, count(*) FROM actions GROUP BY state ORDER BY state;

-- name: insert_approval
INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256)
VALUES (%s, %s, %s, %s, %s, %s);

-- name: insert_action
INSERT INTO actions (action_id, action_key, state, epoch, floor, generation, requester, executor, audience,
    target_class, request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, claim_id, claim_key,
    worker, claimed_ms, prepare_leaf, opening, prepared_ms, permit_expires_ms, handed_out, in_doubt_since_ms, rebuilt,
    more, proposed_at_ms, changed_at_ms)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
RETURNING action_row_id;

-- name: claim_action
UPDATE actions SET state = 'claimed', generation = %s, claim_id = %s, claim_key = %s, worker = %s, claimed_ms = %s,
    changed_at_ms = %s
WHERE action_id = %s AND state = 'available' AND revoked = 0 AND request_sha256 = %s AND executor = %s AND epoch = %s
    AND not_before_ms <= %s AND dispatch_before_ms > %s;

-- name: prepare_action
UPDATE actions SET state = 'prepared', prepare_leaf = 1, opening = %s, prepared_ms = %s, permit_expires_ms = %s,
    changed_at_ms = %s
WHERE action_id = %s AND state = 'claimed' AND revoked = 0 AND claim_id = %s AND worker = %s AND epoch = %s
    AND not_before_ms <= %s AND dispatch_before_ms > %s AND executor = %s;

-- name: hand_out_action
UPDATE actions SET handed_out = 1, changed_at_ms = %s
WHERE action_id = %s AND state = 'prepared' AND handed_out = 0 AND revoked = 0 AND claim_id = %s AND worker = %s
    AND opening = %s AND epoch = %s AND permit_expires_ms > %s AND prepared_ms <= %s AND executor = %s;

-- name: approve_action
UPDATE actions SET state = %s, changed_at_ms = %s
WHERE action_id = %s AND state = 'proposed' AND revoked = 0 AND epoch = %s AND dispatch_before_ms > %s;

-- name: expire_action
UPDATE actions SET state = 'expired', changed_at_ms = %s
WHERE action_id = %s AND state IN ('proposed', 'available') AND dispatch_before_ms <= %s;

-- name: close_unprepared_action
UPDATE actions SET state = 'not_executed', more = %s, changed_at_ms = %s
WHERE action_id = %s AND state IN ('claimed', 'unresolved') AND prepare_leaf = 0 AND handed_out = 0;

-- name: update_action
UPDATE actions SET state = %s, revoked = %s, in_doubt_since_ms = %s, more = %s, changed_at_ms = %s
WHERE action_id = %s AND state = %s AND generation IS NOT DISTINCT FROM %s AND revoked = %s AND handed_out = %s;

-- name: update_action_without_generation
UPDATE actions SET generation = NULL, state = %s, revoked = %s, in_doubt_since_ms = %s, more = %s, changed_at_ms = %s
WHERE action_id = %s AND state = %s AND generation IS NOT DISTINCT FROM %s AND revoked = %s AND handed_out = %s;

-- name: select_operation
SELECT record_id, action_id, salt, payload FROM events
    LEFT JOIN action_records ON record_id >= leaf_index << 16 AND record_id < leaf_index + 1 << 16
    LEFT JOIN actions USING (action_row_id)
WHERE op_id = %s ORDER BY record_id;

-- name: insert_request
INSERT INTO requests (action_row_id, body) VALUES (%s, %s);

-- name: select_request
SELECT body FROM requests JOIN actions USING (action_row_id) WHERE action_id = %s;

-- name: insert_answer
INSERT INTO answers (action_row_id, evidence_id, status, body) VALUES (%s, %s, %s, %s);

-- name: select_answers
SELECT evidence_id, status, body FROM answers JOIN actions USING (action_row_id)
WHERE action_id = %s ORDER BY answer_row_id;

-- name: insert_action_record
INSERT INTO action_records (record_id, action_row_id, salt, payload) VALUES (%s, %s, %s, %s);

-- name: select_action_records
SELECT record_id, action_id, salt, payload FROM action_records JOIN actions USING (action_row_id)
WHERE action_records.action_row_id = (SELECT action_row_id FROM actions WHERE action_id = %s) ORDER BY record_id;

-- name: select_action_records_between
SELECT record_id, action_id, salt, payload FROM action_records LEFT JOIN actions USING (action_row_id)
WHERE record_id >= %s AND record_id < %s ORDER BY record_id LIMIT %s;

-- name: count_action_records
SELECT count(*) FROM action_records;

-- name: select_ownerless
SELECT kind, action_row_id, count(*) OVER () FROM (
    SELECT 'approval' AS kind, action_row_id FROM approvals
    UNION ALL SELECT 'request', action_row_id FROM requests
    UNION ALL SELECT 'answer', action_row_id FROM answers
) AS parts WHERE NOT EXISTS (SELECT 1 FROM actions WHERE actions.action_row_id = parts.action_row_id)
ORDER BY kind, action_row_id LIMIT %s;

-- name: select_latest_record
SELECT record_id, action_id, salt, payload FROM action_records LEFT JOIN actions USING (action_row_id)
ORDER BY record_id DESC LIMIT 1;

-- name: select_last_record
SELECT max(record_id) FROM action_records
WHERE action_row_id = (SELECT action_row_id FROM actions WHERE action_id = %s);

-- name: select_effect_time
SELECT wall_ms, uptime_ms, boot FROM effect_time;

-- name: put_effect_time
INSERT INTO effect_time (id, wall_ms, uptime_ms, boot) VALUES (1, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET wall_ms = excluded.wall_ms, uptime_ms = excluded.uptime_ms, boot = excluded.boot;

-- name: select_corrections
SELECT count(*), coalesce(max(later_ms), 0) FROM clock_corrections;

-- name: select_time_kept
SELECT count(clock_corrections.record_id), coalesce(max(later_ms), 0), wall_ms, uptime_ms, boot
FROM (SELECT 1) AS one LEFT JOIN effect_time ON TRUE LEFT JOIN clock_corrections ON TRUE
GROUP BY wall_ms, uptime_ms, boot;

-- name: select_correction_of
SELECT record_id, later_ms, salt, payload FROM events
    JOIN clock_corrections ON record_id >= leaf_index << 16 AND record_id < leaf_index + 1 << 16
WHERE op_id = %s;

-- name: select_corrections_between
SELECT record_id, later_ms, salt, payload FROM clock_corrections
WHERE record_id >= %s AND record_id < %s ORDER BY record_id LIMIT %s;

-- name: insert_correction
INSERT INTO clock_corrections (record_id, later_ms, salt, payload) VALUES (%s, %s, %s, %s);

-- name: select_trust
SELECT sha256, serial FROM trust_changes WHERE record_id = (SELECT max(record_id) FROM trust_changes);

-- name: select_before_trust
SELECT record_id FROM action_records
WHERE action_row_id = (SELECT action_row_id FROM actions WHERE action_id = %s)
    AND record_id < (SELECT min(record_id) FROM trust_changes) LIMIT 1;

-- name: select_trust_change_of
SELECT record_id, sha256, serial, salt, payload FROM events
    JOIN trust_changes ON record_id >= leaf_index << 16 AND record_id < leaf_index + 1 << 16
WHERE op_id = %s;

-- name: select_trust_changes_between
SELECT record_id, sha256, serial, salt, payload FROM trust_changes
WHERE record_id >= %s AND record_id < %s ORDER BY record_id LIMIT %s;

-- name: insert_trust_change
INSERT INTO trust_changes (record_id, sha256, serial, salt, payload) VALUES (%s, %s, %s, %s, %s);
