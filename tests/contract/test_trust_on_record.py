"""Which trust file a ledger is under is on record: the first one, each that follows, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, LedgerError, NotAdmitted, Refused
from agent_run_ledger.effects import ActionState, Actor, Event, Role, SignedTrust
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.kernel.effects.trust import TrustFile, trust_sha256
from agent_run_ledger.kernel.effects.trust_change import trust_change_from
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.store.effect_reader import RowEffectReader
from agent_run_ledger.testing import check_ledger
from tests.contract.approval_kit import Approvals, approvals
from tests.contract.effect_kit import BOB, FakeWitness
from tests.contract.engine_kit import each_engine, only_a_file
from tests.unit.effects.trust_examples import key

pytestmark = each_engine

A, E = ActionState, Event
OFFICERS = (key("dan"), key("ola"))


def code(asked: Callable[[], object]) -> str:
    with pytest.raises(LedgerError) as refusal:
        asked()
    return refusal.value.code


def later(kit: Approvals, serial: int = 2, **changes: object) -> TrustFile:
    return replace(kit.trust, serial=serial, **changes)  # type: ignore[arg-type]


def leaves(kit: Approvals) -> int:
    return kit.ledger._store.reader().head().size


def lines(kit: Approvals) -> list[tuple[str, str, int]]:
    """The changes of trust files in the log: old state, new state, generation."""
    reader = kit.ledger._store.reader()
    changes = [one for event in reader.events(first=0, stop=reader.head().size) for one in _changes(event.envelope)]
    return [(one["old"], one["new"], one["generation"]) for one in changes if one["new"] == "trusted"]


def _changes(envelope: bytes) -> list[dict[str, object]]:
    return json.loads(envelope)["changes"]  # type: ignore[no-any-return]


def records(kit: Approvals) -> list[tuple[bytes | None, bytes, frozenset[str]]]:
    """Of each trust file on record: the digest of the one before, its own, and the officers who signed it."""
    reader = kit.ledger._store.reader()
    stored = reader.effects.leaf_trust_changes(first=0, stop=reader.head().size)
    made = [trust_change_from(one.payload) for one in stored]
    return [(one.before_sha256, one.sha256, one.officers) for one in made]


def test_the_first_one_that_a_ledger_is_opened_under_is_one_leaf_and_no_more() -> None:
    with approvals(begin=False) as kit:
        before = leaves(kit)
        kit.begin()
        assert (leaves(kit), lines(kit)) == (before + 1, [("untrusted", "trusted", 1)])
        assert records(kit) == [(None, trust_sha256(kit.trust), frozenset({"dan", "ola"}))]
        kit.reopen()
        assert leaves(kit) == before + 1


def test_one_that_follows_is_a_leaf_with_the_officers_who_signed_it() -> None:
    with approvals() as kit:
        first, after = trust_sha256(kit.trust), later(kit, 7)
        kit.follow(after, *OFFICERS)
        assert lines(kit) == [("untrusted", "trusted", 1), ("trusted", "trusted", 7)]
        assert records(kit)[1] == (first, trust_sha256(after), frozenset({"dan", "ola"}))
        assert kit.ledger.trust is not None
        assert kit.ledger.trust.sha256 == trust_sha256(after)
        kit.reopen()
        assert kit.ledger.trust.sha256 == trust_sha256(after)


def test_the_same_one_again_is_on_record_and_changes_nothing() -> None:
    with approvals() as kit:
        signed = sign_trust(later(kit), OFFICERS)
        op_id = kit.id()
        kit.ledger.follow_trust(signed, op_id=op_id)
        size = leaves(kit)
        for again in (op_id, kit.id(), None):
            assert kit.ledger.follow_trust(signed, op_id=again).trust.serial == 2
        assert leaves(kit) == size
        assert (
            kit.code(lambda: kit.ledger.follow_trust(sign_trust(later(kit, 3), OFFICERS), op_id=op_id)) == "op_id_used"
        )


def test_an_op_id_of_a_trust_file_is_that_of_nothing_else() -> None:
    with approvals() as kit:
        view, op_id = kit.asked(), kit.id()
        kit.ledger.follow_trust(sign_trust(later(kit), OFFICERS), op_id=op_id)
        assert kit.code(lambda: kit.do(E.REVOKE, view, op_id=op_id)) == "op_id_used"
        other = kit.id()
        kit.ledger.revoke(Actor("rev", frozenset({Role.REVOKER})), view.action_id, op_id=other)
        third = sign_trust(later(kit, 3), OFFICERS)
        assert kit.code(lambda: kit.ledger.follow_trust(third, op_id=other)) == "op_id_used"


def test_what_does_not_follow_is_refused_and_the_one_in_use_stays() -> None:
    with approvals() as kit, approvals() as other:
        view = kit.asked()
        refused = {
            "few_officers": sign_trust(later(kit), OFFICERS[:1]),
            "old_serial": sign_trust(later(kit, 1, policies=()), OFFICERS),
            "other_ledger": sign_trust(later(other), OFFICERS),
            "bad_envelope": b"{}",
        }
        for expected, signed in refused.items():
            assert kit.code(lambda: kit.ledger.follow_trust(signed)) == expected
        assert kit.grant(view, kit.signed(view)).state is A.AVAILABLE


def test_a_ledger_opens_under_the_one_on_record_only() -> None:
    with approvals() as kit:
        first = kit.signed_trust
        assert first is not None
        second = kit.by_officers(later(kit))
        assert code(lambda: kit.opened(second)) == "other_trust"
        assert code(lambda: kit.opened(None)) == "no_trust"
        kit.follow(second.trust, *OFFICERS)
        assert code(lambda: kit.opened(first)) == "other_trust"
        assert code(lambda: kit.opened(None)) == "no_trust"
        kit.opened(second).close()


def test_the_hint_says_whether_it_is_an_older_or_a_later_one() -> None:
    with approvals() as kit:
        first, second = kit.signed_trust, kit.by_officers(later(kit))
        assert first is not None
        with pytest.raises(Refused, match="`arl trust follow` puts it in use"):
            kit.opened(second)
        kit.follow(second.trust, *OFFICERS)
        with pytest.raises(Refused, match="give the one with the serial 2"):
            kit.opened(first)


def test_who_was_opened_before_goes_on_under_no_other_one_than_is_in_use() -> None:
    with approvals() as kit:
        view, ready, claimed = (kit.asked(name) for name in ("refund:1", "refund:2", "refund:3"))
        for one in (ready, claimed):
            kit.grant(one, kit.signed(one))
        claimed = kit.move(E.CLAIM, claimed)
        data = kit.signed(view)
        with kit.opened(kit.signed_trust) as other:
            other.follow_trust(sign_trust(later(kit), OFFICERS))
        for asked in (
            lambda: kit.ledger.grant(data),
            # By their word, which it refuses: nobody is told of the rules of a file that is in use no more.
            lambda: kit.ledger.approve(BOB, view.action_id, kit.approval(view)),
            lambda: kit.asked("refund:4"),
            lambda: kit.do(E.CLAIM, ready),
            lambda: kit.do(E.PREPARE, claimed),
            lambda: kit.ledger.follow_trust(sign_trust(later(kit, 3), OFFICERS)),
        ):
            assert kit.code(asked) == "other_trust"
        assert kit.move(E.REVOKE, ready).state is A.REVOKED


def test_who_was_opened_without_one_grants_nothing_once_there_is_one() -> None:
    with approvals(begin=False) as kit:
        view, ready = kit.propose(key="refund:1"), kit.move(E.APPROVE, kit.propose(key="refund:2"))
        with kit.opened(kit.by_officers(kit.trust)):
            pass
        for asked in (
            lambda: kit.do(E.APPROVE, view),
            lambda: kit.propose(key="refund:3"),
            lambda: kit.do(E.CLAIM, ready),
        ):
            assert kit.code(asked) == "no_trust"
        kit.ledger.close()
        kit.begin()
        assert kit.code(lambda: kit.do(E.CLAIM, ready)) == "unknown_policy"


def test_the_first_one_counts_by_the_clock_of_the_ledger() -> None:
    with approvals(begin=False) as kit:
        signed = kit.by_officers(kit.trust)
        kit.ticks.tick(100 * 600_000)
        assert code(lambda: kit.opened(signed)) == "few_officers"
        forged = replace(signed, sha256=b"d" * 32)
        assert code(lambda: kit.opened(forged)) == "other_trust"
        assert lines(kit) == []


@only_a_file
def test_a_copy_is_under_none_and_grants_nothing(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.asked()
        data = kit.signed(view)
        path = tmp_path / "copy.db"
        kit.ledger._store.backup(path)
        for trust in (None, kit.signed_trust):
            with EffectLedger(path, time=kit.ticks, settings=kit.settings, trust=trust) as copy:
                assert copy.get(view.action_id).state is A.PROPOSED
                with pytest.raises(LedgerError):
                    copy.grant(data)
        with (
            EffectLedger(path, time=kit.ticks, settings=kit.settings, trust=kit.signed_trust) as copy,
            pytest.raises(NotAdmitted),
        ):
            copy.follow_trust(sign_trust(later(kit), OFFICERS))
        check_ledger(path)


@only_a_file
def test_an_older_file_that_is_put_back_is_under_the_older_one() -> None:
    """Without a witness an older database is not noticed; beside the later trust file it is."""
    with approvals(kept=False) as kit:
        kit.ledger.close()
        older = kit.path.read_bytes()
        kit.ledger = kit._open()
        kit.follow(later(kit), *OFFICERS)
        kit.ledger.close()
        for name in ("-wal", "-shm"):
            Path(f"{kit.path}{name}").unlink(missing_ok=True)
        kit.path.write_bytes(older)
        assert code(lambda: kit.opened(kit.signed_trust)) == "other_trust"


def test_while_the_ledger_may_be_an_old_one_none_comes_into_use() -> None:
    witness = FakeWitness()
    with approvals(witness=witness) as kit:
        signed: SignedTrust = kit.by_officers(later(kit))
        witness.silent()
        kit.follow(signed.trust, *OFFICERS)  # held: nobody claims, and who lost a role has lost it
        witness.says = []
        witness.size += 100
        kit.reopen()
        assert kit.ledger.status().state == "recovery"
        third = sign_trust(later(kit, 3), OFFICERS)
        with pytest.raises(NotAdmitted):
            kit.ledger.follow_trust(third)


def test_the_schema_is_the_last_to_let_one_in() -> None:
    with approvals() as kit:
        reader = kit.ledger._store.reader()
        stored = next(reader.effects.leaf_trust_changes(first=0, stop=reader.head().size))
        again = trust_change_from(stored.payload)
        store = kit.ledger._store
        size = leaves(kit)
        refused = code(lambda: store.transact(kit.id(), lambda tx: tx.effects.change_trust(again, salt=b"s" * 32)))
        assert (refused, leaves(kit)) == ("rules_disagree", size)


def test_opening_makes_no_store(tmp_path: Path) -> None:
    with approvals() as kit:
        missing = tmp_path / "missing.db"
        assert code(lambda: EffectLedger(missing, trust=kit.signed_trust)) == "no_store"
        open_sqlite(missing, create=True, authority=True).close()
        assert code(lambda: EffectLedger(missing, trust=kit.signed_trust)) == "other_trust"


def test_another_one_of_the_same_serial_is_another_one() -> None:
    with approvals() as kit:
        twin = kit.by_officers(replace(kit.trust, policies=kit.trust.policies[:1]))
        assert twin.trust.serial == kit.trust.serial
        assert code(lambda: kit.opened(twin)) == "other_trust"


def test_of_two_first_ones_the_second_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both processes saw none on record; one of them was faster."""
    with approvals(begin=False) as kit:
        first, second = kit.by_officers(kit.trust), kit.by_officers(later(kit))
        kit.opened(first).close()
        monkeypatch.setattr(RowEffectReader, "trust", lambda self: None)
        kit.opened(first).close()
        assert code(lambda: kit.opened(second)) == "other_trust"
        assert lines(kit) == [("untrusted", "trusted", 1)]
