"""A ledger whose bytes were changed between two lives: Tampered or the right result, never a body run again for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_run_ledger import LedgerError, Tampered
from agent_run_ledger.testing import BodyCounter, LedgerBroken, check_ledger
from tests.scenario.programs import held

pytestmark = pytest.mark.fault

CAMPAIGN = int(os.environ.get("ARL_CAMPAIGN", "1"))
EDITOR = Path(held.__file__).resolve().parent / "edit_rows.py"
RESULT = "result 4"


class Crash(BaseException):
    """The process ends here."""


def _crash() -> None:
    raise Crash


def _interrupted(workdir: Path) -> Path:
    """Make a ledger whose run has recorded `first` and was in the middle of `second`."""
    with held.pipeline(workdir, _crash) as ledger, pytest.raises(Crash):
        ledger.execute(n=1)
    return workdir / "ledger.db"


def _completed(workdir: Path) -> Path:
    with held.pipeline(workdir) as ledger:
        assert ledger.execute(n=1) == RESULT
    return workdir / "ledger.db"


def _edit(db: Path, statement: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EDITOR), str(db), statement], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def _go_on(workdir: Path) -> object:
    with held.pipeline(workdir) as ledger:
        return ledger.execute(n=1)


ONE = "WHERE kind = 2 AND name = 'first'"
EDITS_OF_A_RESULT = {
    "payload": f"UPDATE records SET payload = CAST('3' AS BLOB) {ONE}",
    "salt": f"UPDATE records SET salt = randomblob(32) {ONE}",
    "inputs": f"UPDATE records SET inputs = CAST('{{}}' AS BLOB) {ONE}",
    "attempt": f"UPDATE records SET attempt = 7 {ONE}",
    "started": f"UPDATE records SET started_at_ms = 1 {ONE}",
    "encoding": f"UPDATE records SET encoding = 1 {ONE}",
    "digest": f"UPDATE records SET value_sha256 = randomblob(32) {ONE}",
    "fingerprint": f"UPDATE records SET fingerprint = randomblob(32) {ONE}",
    "occurrence": f"UPDATE records SET occurrence = 1 {ONE}",
    "scope": f"UPDATE records SET scope = randomblob(16) {ONE}",
    "name": f"UPDATE records SET name = 'worst' {ONE}",
    "another leaf": f"UPDATE records SET record_id = record_id + 1 {ONE}",
}


@pytest.mark.parametrize("edit", list(EDITS_OF_A_RESULT))
def test_a_changed_result_is_never_used_and_never_a_reason_to_pay_again(edit: str, tmp_path: Path) -> None:
    db = _interrupted(tmp_path)
    check_ledger(db)
    _edit(db, EDITS_OF_A_RESULT[edit])
    with pytest.raises(Tampered):
        _go_on(tmp_path)
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1}
    with pytest.raises(LedgerBroken):
        check_ledger(db)


EDITS_OF_A_COMPLETED_RUN = {
    "its result": "UPDATE records SET payload = CAST('\"result 5\"' AS BLOB) WHERE kind = 2 AND name = 'third'",
    "its end points elsewhere": "UPDATE records SET payload = (SELECT CAST(replace(CAST(payload AS TEXT), "
    "(SELECT CAST(record_id AS TEXT) FROM records WHERE kind = 2 AND name = 'third'), "
    "(SELECT CAST(record_id AS TEXT) FROM records WHERE kind = 2 AND name = 'first')) AS BLOB)) WHERE kind = 6",
    "its inputs": "UPDATE records SET salt = randomblob(32) WHERE kind = 1",
    "its row's end": "UPDATE runs SET end_record_id = (SELECT record_id FROM records WHERE name = 'first')",
    "its row's start": "UPDATE runs SET start_record_id = end_record_id",
}


@pytest.mark.parametrize("edit", list(EDITS_OF_A_COMPLETED_RUN))
def test_a_completed_run_that_was_changed_returns_nothing_false(edit: str, tmp_path: Path) -> None:
    db = _completed(tmp_path)
    _edit(db, EDITS_OF_A_COMPLETED_RUN[edit])
    with pytest.raises(Tampered):
        _go_on(tmp_path)
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1, "third": 1}
    with pytest.raises(LedgerBroken):
        check_ledger(db)


EDITS_FOR_THE_AUDITOR = {
    "a state": "UPDATE runs SET state = 'failed'",
    "a generation": "UPDATE runs SET generation = generation + 1",
    "an attempt": "UPDATE runs SET attempt = 9",
    "a deleted result": "DELETE FROM records WHERE name = 'second'",
    "a deleted run": "DELETE FROM runs",
    "a mark": "INSERT INTO in_flight VALUES (65536, 'first', x'', x'00', 0, 1, 1, 1, 1, 1, 0, x'')",
    "the head": "UPDATE head SET size = size - 1",
    "the frontier": "UPDATE head SET frontier = randomblob(length(frontier))",
    "a leaf beyond": "INSERT INTO events VALUES (900, randomblob(16), x'7b7d')",
}


@pytest.mark.parametrize("edit", list(EDITS_FOR_THE_AUDITOR))
def test_check_ledger_finds_what_no_life_would_stumble_over(edit: str, tmp_path: Path) -> None:
    db = _completed(tmp_path)
    check_ledger(db)
    _edit(db, EDITS_FOR_THE_AUDITOR[edit])
    with pytest.raises(LedgerBroken) as raised:
        check_ledger(db)
    assert raised.value.problems


def _flipped(at: int) -> Callable[[Path], None]:
    def flip(db: Path) -> None:
        content = bytearray(db.read_bytes())
        content[at] ^= 1 << at % 8
        db.write_bytes(content)

    return flip


def _cut(part: float) -> Callable[[Path], None]:
    def cut(db: Path) -> None:
        content = db.read_bytes()
        db.write_bytes(content[: int(len(content) * part)])

    return cut


def _overwritten(db: Path) -> None:
    db.write_bytes(b"something else entirely\n" * 1000)


@pytest.mark.parametrize("damage", [_cut(0.9), _cut(0.5), _cut(0.1), _overwritten], ids=["90%", "50%", "10%", "other"])
def test_a_torn_or_overwritten_file_is_refused_and_no_body_runs(damage: Callable[[Path], None], tmp_path: Path) -> None:
    db = _interrupted(tmp_path)
    damage(db)
    with pytest.raises(LedgerError) as raised:
        _go_on(tmp_path)
    assert raised.value.code in {"corrupt", "foreign_file", "schema_changed"}
    assert BodyCounter(tmp_path / "bodies.log").count() == {"first": 1, "second": 1}
    with pytest.raises(LedgerBroken):
        check_ledger(db)


def test_a_flipped_bit_anywhere_is_refused_or_harmless_or_at_least_found_by_the_check(tmp_path: Path) -> None:
    """One bit in many places of the file. A limit: an index without its entry is seen by the check, not by a resume."""
    original = tmp_path / "original"
    original.mkdir()
    db = _interrupted(original)
    codes: Counter[str] = Counter()
    for number, at in enumerate(range(137, db.stat().st_size, 389 // CAMPAIGN or 1)):
        workdir = tmp_path / str(number)
        shutil.copytree(original, workdir)
        _flipped(at)(workdir / "ledger.db")
        found = _is_broken(shutil.copy(workdir / "ledger.db", workdir / "copy.db"))
        try:
            assert _go_on(workdir) == RESULT
            codes["went on"] += 1
        except LedgerError as error:
            codes[error.code if not isinstance(error, Tampered) else "tampered"] += 1
        assert found or BodyCounter(workdir / "bodies.log").count()["first"] == 1, (
            f"bit flipped at {at}: first ran again"
        )
        shutil.rmtree(workdir)
    assert codes["tampered"]
    assert codes["went on"]
    assert codes.keys() <= {"tampered", "went on", "foreign_file", "schema_newer"}


def _is_broken(db: Path) -> bool:
    try:
        check_ledger(db)
    except LedgerBroken:
        return True
    return False
