-- The tables of the newest schema version, to be read: what the migrations add up to (a test compares the two).
-- Stores are made by the migrations, never by this file. Layout: docs/formats/schema.md.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
);

CREATE TABLE head (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    size     INTEGER NOT NULL CHECK (size >= 0),
    frontier BLOB    NOT NULL CHECK (length(frontier) % 32 = 0),
    epoch    INTEGER NOT NULL CHECK (epoch >= 0),
    time_ms  INTEGER NOT NULL
);

CREATE TABLE events (
    leaf_index INTEGER PRIMARY KEY,
    op_id      BLOB NOT NULL UNIQUE CHECK (length(op_id) = 16),
    envelope   BLOB NOT NULL
);

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
, forked_from_row_id INTEGER REFERENCES runs (row_id), queue TEXT);

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
, usage BLOB);

CREATE UNIQUE INDEX records_result ON records (run_row_id, fingerprint, scope, occurrence) WHERE kind = 2;

CREATE INDEX records_other ON records (run_row_id, record_id) WHERE kind <> 2;

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
, repeatable INTEGER NOT NULL DEFAULT 1, after_record_id INTEGER NOT NULL DEFAULT 0, reserved BLOB NOT NULL DEFAULT x'');

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are history'); END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are history'); END;

CREATE TRIGGER tiles_no_update BEFORE UPDATE ON tiles
BEGIN SELECT RAISE(ABORT, 'tiles are history'); END;

CREATE TRIGGER tiles_no_delete BEFORE DELETE ON tiles
BEGIN SELECT RAISE(ABORT, 'tiles are history'); END;

CREATE INDEX records_usage ON records (run_row_id, record_id) WHERE usage IS NOT NULL;

CREATE INDEX runs_forked ON runs (forked_from_row_id, row_id) WHERE forked_from_row_id IS NOT NULL;

CREATE TABLE migrations (
    version       INTEGER PRIMARY KEY,
    sha256        BLOB    NOT NULL CHECK (length(sha256) = 32),
    applied_at_ms INTEGER NOT NULL
);

CREATE TRIGGER records_no_delete BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'records are erased, never deleted'); END;

CREATE TRIGGER records_erased_only BEFORE UPDATE ON records
WHEN NEW.salt IS NOT NULL OR NEW.payload IS NOT NULL OR NEW.kind NOT IN (1, 2, 3, 4, 5)
    OR length(NEW.fingerprint) = 32 OR length(NEW.inputs) <> 0 OR length(NEW.code) <> 0 OR length(NEW.value_sha256) <> 0
    OR NEW.record_id IS NOT OLD.record_id OR NEW.run_row_id IS NOT OLD.run_row_id OR NEW.kind IS NOT OLD.kind
    OR NEW.scope IS NOT OLD.scope OR NEW.name IS NOT OLD.name OR NEW.occurrence IS NOT OLD.occurrence
    OR NEW.attempt IS NOT OLD.attempt OR NEW.tries IS NOT OLD.tries OR NEW.started_at_ms IS NOT OLD.started_at_ms
    OR NEW.ended_at_ms IS NOT OLD.ended_at_ms OR NEW.encoding IS NOT OLD.encoding OR NEW.usage IS NOT OLD.usage
BEGIN SELECT RAISE(ABORT, 'a record is history: it can only be erased'); END;

CREATE INDEX runs_parent ON runs (parent_row_id, row_id) WHERE parent_row_id IS NOT NULL;

CREATE TABLE budgets (
    budget_id  INTEGER PRIMARY KEY,
    run_row_id INTEGER NOT NULL REFERENCES runs (row_id),
    tool       TEXT    NOT NULL,
    counters   BLOB    NOT NULL,
    UNIQUE (run_row_id, tool)
);

CREATE TABLE actions (
    action_row_id      INTEGER PRIMARY KEY,
    action_id          BLOB    NOT NULL UNIQUE CHECK (length(action_id) = 16),
    action_key         TEXT    NOT NULL,
    state              TEXT    NOT NULL CHECK (CASE state
        WHEN 'proposed' THEN 1 WHEN 'available' THEN 1 WHEN 'claimed' THEN 1 WHEN 'prepared' THEN 1
        WHEN 'unresolved' THEN 1 WHEN 'succeeded' THEN 1 WHEN 'superseded' THEN 1 WHEN 'rejected' THEN 1
        WHEN 'expired' THEN 1 WHEN 'revoked' THEN 1 WHEN 'not_executed' THEN 1 WHEN 'written_off' THEN 1
        ELSE 0 END),
    epoch              INTEGER NOT NULL CHECK (epoch >= 0),
    floor              INTEGER NOT NULL CHECK (floor >= 0),
    generation         INTEGER CHECK (generation > floor),
    requester          TEXT    NOT NULL,
    executor           TEXT    NOT NULL,
    audience           TEXT    NOT NULL,
    target_class       TEXT    NOT NULL CHECK (target_class IN ('n', 'v', 'i', 'f_minus', 'f')),
    request_sha256     BLOB    NOT NULL CHECK (length(request_sha256) = 32),
    not_before_ms      INTEGER NOT NULL,
    dispatch_before_ms INTEGER NOT NULL CHECK (dispatch_before_ms > not_before_ms),
    approvals_needed   INTEGER NOT NULL CHECK (approvals_needed >= 1),
    revoked            INTEGER NOT NULL CHECK (revoked IN (0, 1)),
    claim_id           BLOB,
    claim_key          BLOB,
    worker             TEXT,
    claimed_ms         INTEGER,
    prepare_leaf       INTEGER NOT NULL CHECK (prepare_leaf IN (0, 1)),
    opening            BLOB,
    prepared_ms        INTEGER,
    permit_expires_ms  INTEGER CHECK (permit_expires_ms <= dispatch_before_ms),
    handed_out         INTEGER NOT NULL CHECK (handed_out IN (0, 1)),
    in_doubt_since_ms  INTEGER,
    rebuilt            INTEGER NOT NULL CHECK (rebuilt IN (0, 1)),
    more               BLOB    NOT NULL,
    proposed_at_ms     INTEGER NOT NULL,
    changed_at_ms      INTEGER NOT NULL,
    CHECK (state NOT IN ('claimed', 'prepared') OR generation IS NOT NULL),
    CHECK (generation IS NULL OR rebuilt = 1 OR (claim_id IS NOT NULL AND claim_key IS NOT NULL
        AND worker IS NOT NULL AND claimed_ms IS NOT NULL)),
    CHECK (state <> 'prepared' OR prepare_leaf = 1),
    CHECK (prepare_leaf = 0 OR (opening IS NOT NULL AND prepared_ms IS NOT NULL AND permit_expires_ms IS NOT NULL)),
    CHECK (handed_out = 0 OR prepare_leaf = 1),
    CHECK (state <> 'unresolved' OR in_doubt_since_ms IS NOT NULL),
    CHECK (state <> 'revoked' OR revoked = 1)
);

CREATE UNIQUE INDEX actions_generation ON actions (action_key, generation) WHERE generation IS NOT NULL;

CREATE INDEX actions_members ON actions (action_key, action_row_id);

CREATE INDEX actions_inbox ON actions (state, action_row_id);

CREATE TABLE approvals (
    approval_row_id  INTEGER PRIMARY KEY,
    approval_id      BLOB    NOT NULL UNIQUE,
    action_row_id    INTEGER NOT NULL REFERENCES actions (action_row_id),
    principal        TEXT    NOT NULL,
    epoch            INTEGER NOT NULL CHECK (epoch >= 0),
    nonce            BLOB    NOT NULL,
    statement_sha256 BLOB    NOT NULL CHECK (length(statement_sha256) = 32),
    UNIQUE (action_row_id, principal)
);

CREATE TABLE requests (
    action_row_id INTEGER PRIMARY KEY REFERENCES actions (action_row_id),
    body          BLOB NOT NULL
);

CREATE TABLE answers (
    answer_row_id INTEGER PRIMARY KEY,
    action_row_id INTEGER NOT NULL REFERENCES actions (action_row_id),
    evidence_id   BLOB    NOT NULL UNIQUE,
    status        INTEGER,
    body          BLOB    NOT NULL
);

CREATE INDEX answers_of ON answers (action_row_id, answer_row_id);

CREATE TABLE action_records (
    record_id     INTEGER PRIMARY KEY,
    action_row_id INTEGER NOT NULL REFERENCES actions (action_row_id),
    salt          BLOB    NOT NULL CHECK (length(salt) = 32),
    payload       BLOB    NOT NULL
);

CREATE INDEX action_records_of ON action_records (action_row_id, record_id);

CREATE TABLE effect_time (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    wall_ms   INTEGER NOT NULL,
    uptime_ms INTEGER NOT NULL,
    boot      TEXT    NOT NULL
);

CREATE TABLE clock_corrections (
    record_id INTEGER PRIMARY KEY,
    later_ms  INTEGER NOT NULL,
    salt      BLOB    NOT NULL CHECK (length(salt) = 32),
    payload   BLOB    NOT NULL
);

CREATE TABLE trust_changes (
    record_id INTEGER PRIMARY KEY,
    sha256    BLOB    NOT NULL CHECK (length(sha256) = 32),
    serial    INTEGER NOT NULL CHECK (serial >= 1),
    salt      BLOB    NOT NULL CHECK (length(salt) = 32),
    payload   BLOB    NOT NULL
);

CREATE TRIGGER actions_arrows BEFORE UPDATE ON actions
WHEN NEW.state <> OLD.state AND CASE OLD.state || '>' || NEW.state
    WHEN 'available>claimed' THEN 0 WHEN 'claimed>prepared' THEN 0 WHEN 'prepared>succeeded' THEN 0
    WHEN 'proposed>superseded' THEN 0 WHEN 'proposed>rejected' THEN 0 WHEN 'proposed>available' THEN 0
    WHEN 'proposed>revoked' THEN 0 WHEN 'proposed>expired' THEN 0
    WHEN 'available>revoked' THEN 0 WHEN 'available>expired' THEN 0
    WHEN 'claimed>not_executed' THEN 0 WHEN 'claimed>unresolved' THEN 0
    WHEN 'prepared>superseded' THEN 0 WHEN 'prepared>not_executed' THEN 0 WHEN 'prepared>unresolved' THEN 0
    WHEN 'unresolved>not_executed' THEN 0 WHEN 'unresolved>succeeded' THEN 0
    WHEN 'unresolved>superseded' THEN 0 WHEN 'unresolved>written_off' THEN 0
    WHEN 'not_executed>superseded' THEN 0 WHEN 'expired>superseded' THEN 0
    WHEN 'rejected>superseded' THEN 0 WHEN 'revoked>superseded' THEN 0
    ELSE 1 END
BEGIN SELECT RAISE(ABORT, 'no arrow leads there'); END;

CREATE TRIGGER actions_open BEFORE INSERT ON actions
WHEN EXISTS (SELECT 1 FROM actions WHERE action_key = NEW.action_key
    AND state IN ('proposed', 'available', 'claimed', 'prepared', 'unresolved'))
BEGIN SELECT RAISE(ABORT, 'this key has an open member'); END;

CREATE TRIGGER actions_begin BEFORE INSERT ON actions
WHEN NOT (NEW.state IN ('proposed', 'unresolved') AND NEW.rebuilt = 0 AND NEW.generation IS NULL
    AND NEW.handed_out = 0 AND NEW.prepare_leaf = 0 AND NEW.revoked = 0
    OR NEW.state = 'succeeded' AND NEW.rebuilt = 1 AND NEW.generation IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'no action begins there'); END;

CREATE TRIGGER actions_alone AFTER INSERT ON actions
WHEN EXISTS (SELECT 1 FROM approvals WHERE action_row_id = NEW.action_row_id)
    OR EXISTS (SELECT 1 FROM requests WHERE action_row_id = NEW.action_row_id)
    OR EXISTS (SELECT 1 FROM answers WHERE action_row_id = NEW.action_row_id)
BEGIN SELECT RAISE(ABORT, 'approvals, a request or answers were there before their action'); END;

CREATE TRIGGER actions_lasting BEFORE UPDATE ON actions
WHEN NEW.action_row_id IS NOT OLD.action_row_id OR NEW.action_id IS NOT OLD.action_id
    OR NEW.action_key IS NOT OLD.action_key OR NEW.epoch IS NOT OLD.epoch OR NEW.floor IS NOT OLD.floor
    OR NEW.requester IS NOT OLD.requester OR NEW.executor IS NOT OLD.executor OR NEW.audience IS NOT OLD.audience
    OR NEW.target_class IS NOT OLD.target_class OR NEW.request_sha256 IS NOT OLD.request_sha256
    OR NEW.not_before_ms IS NOT OLD.not_before_ms OR NEW.dispatch_before_ms IS NOT OLD.dispatch_before_ms
    OR NEW.approvals_needed IS NOT OLD.approvals_needed OR NEW.proposed_at_ms IS NOT OLD.proposed_at_ms
    OR NEW.rebuilt IS NOT OLD.rebuilt OR NEW.revoked < OLD.revoked OR NEW.handed_out < OLD.handed_out
    OR NEW.prepare_leaf < OLD.prepare_leaf
    OR (OLD.claim_id IS NOT NULL AND (NEW.claim_id IS NOT OLD.claim_id OR NEW.claim_key IS NOT OLD.claim_key
        OR NEW.worker IS NOT OLD.worker OR NEW.claimed_ms IS NOT OLD.claimed_ms))
    OR (OLD.prepare_leaf = 1 AND (NEW.opening IS NOT OLD.opening OR NEW.prepared_ms IS NOT OLD.prepared_ms
        OR NEW.permit_expires_ms IS NOT OLD.permit_expires_ms))
    OR (OLD.generation IS NOT NULL AND NEW.generation IS NOT OLD.generation
        AND NOT (NEW.generation IS NULL AND NEW.state = 'superseded'))
BEGIN SELECT RAISE(ABORT, 'this of an action does not change'); END;

CREATE TRIGGER actions_approved BEFORE UPDATE ON actions
WHEN NEW.state IN ('available', 'claimed') AND OLD.state <> NEW.state AND NEW.approvals_needed > (
    SELECT count(*) FROM approvals WHERE action_row_id = NEW.action_row_id AND epoch = NEW.epoch)
BEGIN SELECT RAISE(ABORT, 'too few approvals'); END;

CREATE TRIGGER actions_no_delete BEFORE DELETE ON actions
BEGIN SELECT RAISE(ABORT, 'actions are history'); END;

CREATE TRIGGER approvals_no_update BEFORE UPDATE ON approvals
BEGIN SELECT RAISE(ABORT, 'approvals are history'); END;

CREATE TRIGGER approvals_no_delete BEFORE DELETE ON approvals
BEGIN SELECT RAISE(ABORT, 'approvals are history'); END;

CREATE TRIGGER requests_no_update BEFORE UPDATE ON requests
BEGIN SELECT RAISE(ABORT, 'a request is what was approved'); END;

CREATE TRIGGER requests_no_delete BEFORE DELETE ON requests
BEGIN SELECT RAISE(ABORT, 'a request is what was approved'); END;

CREATE TRIGGER answers_no_update BEFORE UPDATE ON answers
BEGIN SELECT RAISE(ABORT, 'an answer is what came'); END;

CREATE TRIGGER answers_no_delete BEFORE DELETE ON answers
BEGIN SELECT RAISE(ABORT, 'an answer is what came'); END;

CREATE TRIGGER action_records_no_update BEFORE UPDATE ON action_records
BEGIN SELECT RAISE(ABORT, 'records are history'); END;

CREATE TRIGGER action_records_no_delete BEFORE DELETE ON action_records
BEGIN SELECT RAISE(ABORT, 'records are history'); END;

CREATE TRIGGER clock_corrections_no_update BEFORE UPDATE ON clock_corrections
BEGIN SELECT RAISE(ABORT, 'corrections are history'); END;

CREATE TRIGGER clock_corrections_no_delete BEFORE DELETE ON clock_corrections
BEGIN SELECT RAISE(ABORT, 'corrections are history'); END;

CREATE TRIGGER trust_changes_onward BEFORE INSERT ON trust_changes
WHEN EXISTS (SELECT 1 FROM trust_changes WHERE serial >= NEW.serial OR record_id >= NEW.record_id)
BEGIN SELECT RAISE(ABORT, 'a later trust file has a higher serial'); END;

CREATE TRIGGER trust_changes_no_update BEFORE UPDATE ON trust_changes
BEGIN SELECT RAISE(ABORT, 'trust files are history'); END;

CREATE TRIGGER trust_changes_no_delete BEFORE DELETE ON trust_changes
BEGIN SELECT RAISE(ABORT, 'trust files are history'); END;

CREATE INDEX runs_queued ON runs (queue, row_id)
WHERE queue IS NOT NULL AND (state = 'running' OR state = 'suspended' AND reason = 'submitted');

CREATE INDEX runs_waiting ON runs (queue, row_id)
WHERE queue IS NOT NULL AND state = 'suspended' AND reason <> 'submitted';
