-- The inbox of the benchmark: copies of one action that the ledger itself made, without a log. Read only afterwards.

-- name: pattern
CREATE TEMP TABLE pattern AS SELECT * FROM actions LIMIT 1;

-- name: begin
BEGIN;

-- name: copy
WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < ?)
INSERT INTO actions (action_id, action_key, state, epoch, floor, requester, executor, audience, target_class,
    request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, prepare_leaf, handed_out, rebuilt,
    more, proposed_at_ms, changed_at_ms)
SELECT randomblob(16), 'copy-' || i, state, epoch, floor, requester, executor, audience, target_class,
    request_sha256, not_before_ms, dispatch_before_ms, approvals_needed, revoked, prepare_leaf, handed_out, rebuilt,
    more, proposed_at_ms, changed_at_ms
FROM number, pattern;

-- name: approve
INSERT INTO approvals (approval_id, action_row_id, principal, epoch, nonce, statement_sha256)
SELECT action_id, action_row_id, 'bob', epoch, action_id, request_sha256 FROM actions WHERE action_row_id % ? = 0;

-- name: release
UPDATE actions SET state = 'available' WHERE action_row_id % ? = 0;

-- name: commit
COMMIT;

-- name: mean_size
SELECT (SELECT avg(length(payload)) FROM action_records) + (SELECT avg(length(envelope)) FROM events);
