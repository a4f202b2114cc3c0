"""The auditor on trust files and on what was approved under them: silent about honest ones, precise about forgeries."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.effects import Event
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.kernel.effects import Role
from agent_run_ledger.kernel.effects.trust import trust_sha256
from agent_run_ledger.kernel.effects.trust_change import trust_change_mac
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import LedgerBroken, check_ledger
from tests.contract.approval_kit import approvals, someone
from tests.contract.effect_stories import Change, edit, forge_record, places, problems_of, rewrite
from tests.contract.test_trust_on_record import OFFICERS
from tests.unit.effects.trust_examples import key

E = Event
Tree = dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trust files, with actions approved under each; in the second one bob has another key."""
    with approvals() as kit:
        before = kit.asked("before")
        kit.grant(before, kit.signed(before))
        principals = tuple(
            someone("bob", Role.APPROVER, keys=(someone("new", Role.APPROVER).keys[0],)) if one.name == "bob" else one
            for one in kit.trust.principals
        )
        kit.follow(replace(kit.trust, serial=2, principals=principals), *OFFICERS)
        after = kit.asked("after")
        kit.grant(after, kit.signed(after, by=key("new")))
        kit.ledger.close()
        return Path(shutil.copy(kit.path, tmp_path_factory.mktemp("trust") / "written.db"))


@pytest.fixture
def ledger(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(written, tmp_path / "forged.db"))


def changes(path: Path) -> list[int]:
    """The record ids of the trust files."""
    store = open_sqlite(path, create=False)
    try:
        return [one.record_id for one in store.reader().effects.leaf_trust_changes(first=0, stop=999)]
    finally:
        store.close()


def forge(path: Path, at: int, change: Change, line: Change = lambda line: None) -> None:
    """Rewrite a trust file's record thoroughly: see `forge_record`."""
    forge_record(
        path,
        at,
        read=lambda effects: effects.leaf_trust_changes,
        table="trust_changes",
        mac=trust_change_mac,
        change=lambda tree: change(tree["change"]),
        of_leaf=line,
    )


def test_honest_trust_files_are_no_problem(ledger: Path) -> None:
    assert problems_of(ledger) == []
    assert len(changes(ledger)) == 2
    check_ledger(ledger)


BESIDE: dict[str, tuple[str, str]] = {
    "another payload": (
        "UPDATE trust_changes SET payload = CAST(replace(payload, 'ola', 'olo') AS BLOB) WHERE record_id = {at}",
        "change 0, a trust file: the record is not the one whose MAC the leaf has",
    ),
    "another salt": (
        "UPDATE trust_changes SET salt = zeroblob(32) WHERE record_id = {at}",
        "the record is not the one whose MAC the leaf has",
    ),
    "a record less": (
        "DELETE FROM trust_changes WHERE record_id = {at}",
        "it has the MAC of a record that is not in the store",
    ),
    "a record more": (
        "INSERT INTO trust_changes SELECT record_id + 1, sha256, 9, salt, payload FROM trust_changes "
        "WHERE record_id = {at}",
        "a record of a trust file at position 1, where the leaf has none",
    ),
    "another serial in the row": (
        "UPDATE trust_changes SET serial = 9 WHERE record_id = {at}",
        "its row says serial 9",
    ),
    "another digest in the row": (
        "UPDATE trust_changes SET sha256 = zeroblob(32) WHERE record_id = {at}",
        "its row says serial",
    ),
    "a payload of another type": (
        "UPDATE trust_changes SET payload = CAST(payload AS TEXT) WHERE record_id = {at}",
        "a record of a trust file cannot be read",
    ),
    "a digest of another type": (
        "UPDATE trust_changes SET sha256 = 'x' WHERE record_id = {at}",
        "a record of a trust file cannot be read",
    ),
    "a leaf less": (
        "DELETE FROM events WHERE leaf_index = {at} >> 16",
        "a record of a trust file, whose leaf is missing",
    ),
}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("sql", "words"), BESIDE.values(), ids=BESIDE)
def test_a_record_that_is_not_the_leafs_is_named_at_its_leaf(ledger: Path, sql: str, words: str, which: int) -> None:
    at = changes(ledger)[which]
    assert edit(ledger, sql.format(at=at)) > 0
    problems = problems_of(ledger)
    assert any(index == at >> 16 and words in text for index, text in problems), problems
    with pytest.raises(LedgerBroken, match="forged"):
        check_ledger(ledger)


def test_what_follows_one_that_cannot_be_read_is_not_blamed(ledger: Path) -> None:
    first, _ = changes(ledger)
    edit(ledger, f"DELETE FROM trust_changes WHERE record_id = {first}")
    assert [index for index, _ in problems_of(ledger)] == [first >> 16]


@pytest.mark.parametrize("leaf", [-3, 999])
def test_a_record_outside_the_log_is_named(ledger: Path, leaf: int) -> None:
    at, _ = changes(ledger)
    columns = "sha256, 99, salt, payload FROM trust_changes"
    edit(ledger, f"INSERT INTO trust_changes SELECT {leaf << 16}, {columns} WHERE record_id = {at}")
    assert (leaf, "a record of a trust file outside the log that the head describes") in problems_of(ledger)


def _officer_less(tree: Tree) -> None:
    envelope = json.loads(tree["signed"])
    envelope["signatures"].pop()
    tree["signed"] = json.dumps(envelope)


def _other_file(tree: Tree) -> None:
    envelope = json.loads(tree["signed"])
    envelope["payload"] = b64encode(b64decode(envelope["payload"]).replace(b'"bob"', b'"bnb"')).decode()
    tree["signed"] = json.dumps(envelope)


Forgery = tuple[Callable[[Tree], object], Callable[[Tree], object], str]
REWRITTEN: dict[str, Forgery] = {
    "a signature less": (_officer_less, lambda line: None, "it did not count: few_officers"),
    "another file": (_other_file, lambda line: None, "it did not count: other_trust"),
    "no envelope": (lambda tree: tree.update(signed="{}"), lambda line: None, "it did not count: bad_envelope"),
    "a time before its keys": (
        lambda tree: tree["now"].update(earliest_ms=-1, latest_ms=-1),
        lambda line: None,
        "it did not count: few_officers",
    ),
    "another officer": (
        lambda tree: tree.update(officers=["dan", "eve"]),
        lambda line: None,
        "its record names the officers ['dan', 'eve'], and ['dan', 'ola'] signed it",
    ),
    "another digest": (lambda tree: tree.update(sha256="00" * 32), lambda line: None, "it did not count: other_trust"),
    "another serial": (
        lambda tree: tree.update(serial=9),
        lambda line: line.update(generation=9),
        "its record names another ledger or serial than itself",
    ),
    "the record of another log": (
        lambda tree: tree.update(ledger_id="00" * 16),
        lambda line: None,
        "log and epoch",
    ),
    "the record of another epoch": (lambda tree: tree.update(epoch=1), lambda line: None, "log and epoch"),
    "another one before it": (
        lambda tree: tree.update(before_sha256="00" * 32),
        lambda line: line.update(old="trusted"),
        "it follows another one than the one that was in use",
    ),
    "another old state": (lambda tree: None, lambda line: line.update(old="open"), "old state 'open', generation"),
    "a generation": (lambda tree: None, lambda line: line.update(generation=0), "generation 0"),
    "no record at all": (lambda tree: tree.pop("signed"), lambda line: None, "the record is none: "),
    "no MAC": (lambda tree: None, lambda line: line.pop("mac"), "the leaf has no MAC of its record"),
    "another change in its place": (
        lambda tree: None,
        lambda line: line.update(new="trustes"),
        "a record of a trust file at position 0, where the leaf has none",
    ),
}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("change", "line", "words"), REWRITTEN.values(), ids=REWRITTEN)
def test_one_that_was_rewritten_against_the_rule_is_named(
    ledger: Path, change: Callable[[Tree], object], line: Callable[[Tree], object], words: str, which: int
) -> None:
    at = changes(ledger)[which]
    forge(ledger, at, change, line)
    problems = problems_of(ledger)
    assert any(index == at >> 16 and words in text for index, text in problems), problems
    assert not any("frontier" in text for _, text in problems)


def test_one_that_the_officers_before_did_not_sign_is_named(tmp_path: Path) -> None:
    """Who can write the file makes officers of their own: what they sign counts by itself, and follows nothing."""
    with approvals(kept=False) as kit:
        mine = tuple(someone(name, Role.OFFICER, Role.APPROVER) for name in ("eve", "mal"))
        stolen = replace(kit.trust, serial=2, principals=mine, policies=())
        kit.follow(replace(kit.trust, serial=2), *OFFICERS)
        kit.ledger.close()
        path = Path(shutil.copy(kit.path, tmp_path / "forged.db"))
    _, at = changes(path)
    signed = sign_trust(stolen, [key("eve"), key("mal")]).decode()
    digest = trust_sha256(stolen)
    forge(path, at, lambda tree: tree.update(signed=signed, sha256=digest.hex(), officers=["eve", "mal"]))
    edit(path, f"UPDATE trust_changes SET sha256 = x'{digest.hex()}' WHERE record_id = {at}")
    assert problems_of(path) == [(at >> 16, "change 0, a trust file: it did not count: few_officers")]


def _unsigned(tree: Tree) -> None:
    for name in ("key_id", "signature"):
        tree["command"]["approval"].pop(name)


APPROVALS: dict[str, tuple[str, Callable[[Tree], object], str]] = {
    "without its signature": ("after", _unsigned, "it was approved without a signature, under a trust file"),
    "with another signature": (
        "after",
        lambda tree: tree["command"]["approval"].update(signature="ab" * 64),
        "the approval does not count under the trust file: bad_signature",
    ),
    "with a key of before": (
        "after",
        lambda tree: tree["command"]["approval"].update(key_id=key("bob").key_id),
        "the approval does not count under the trust file: other_key",
    ),
    "with a key of afterwards": (
        "before",
        lambda tree: tree["command"]["approval"].update(key_id=key("new").key_id),
        "the approval does not count under the trust file: other_key",
    ),
}


@pytest.mark.parametrize(("which", "change", "words"), APPROVALS.values(), ids=APPROVALS)
def test_an_approval_whose_signature_is_forged_is_named(
    ledger: Path, which: str, change: Callable[[Tree], object], words: str
) -> None:
    (at,) = places(ledger, which, "Approve")
    rewrite(ledger, at, change)
    problems = problems_of(ledger)
    assert len(problems) == 1, problems
    assert problems[0][0] == at >> 16
    assert words in problems[0][1]
