"""Where the trust file of a store is found, and who somebody is by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, Refused
from agent_run_ledger.effects import Actor
from agent_run_ledger.effects.trusting import MAX_SIGNED_BYTES, sign_trust
from agent_run_ledger.kernel.effects import Now, Role
from agent_run_ledger.kernel.effects.trust import trust_sha256
from agent_run_ledger.ledger.authority import (
    TRUST_VARIABLE,
    Authority,
    actor_of,
    actor_with_key,
    find_authority,
    open_effects,
    trust_in_use,
)
from agent_run_ledger.ledger.local_trust import TRUST_NAME, is_local, local_folder
from tests.contract.approval_kit import KEY_ENDS_MS, Approvals, approvals
from tests.contract.effect_kit import START_MS
from tests.unit.effects.trust_examples import key


def signed(kit: Approvals) -> bytes:
    assert kit.signed_trust is not None
    return kit.signed_trust.signed


def found(kit: Approvals, path: Path | None = None) -> Authority | None:
    return find_authority(kit.path, path, time=kit.ticks)


def code(asked: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refusal:
        asked()
    return refusal.value.code


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)


def beside(kit: Approvals) -> Path:
    path = local_folder(kit.path) / TRUST_NAME
    path.parent.mkdir()
    path.write_bytes(signed(kit))
    return path


def test_the_path_that_is_given_is_before_the_environments_and_that_before_the_one_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with approvals() as kit:
        assert found(kit) is None
        local, named, given = beside(kit), tmp_path / "named.json", tmp_path / "given.json"
        for path in (named, given):
            path.write_bytes(signed(kit))
        authority = found(kit)
        assert authority is not None
        assert (authority.path, authority.local) == (local, False)
        assert trust_sha256(authority.trust) == trust_sha256(kit.trust)
        monkeypatch.setenv(TRUST_VARIABLE, str(named))
        assert getattr(found(kit), "path", None) == named
        assert getattr(found(kit, given), "path", None) == given
        monkeypatch.setenv(TRUST_VARIABLE, "")
        assert getattr(found(kit), "path", None) == local
        (local.parent / "approver.pem").touch()
        assert getattr(found(kit), "local", None) is True


def test_a_file_that_was_named_is_there_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with approvals() as kit:
        beside(kit)
        missing = tmp_path / "missing.json"
        assert code(lambda: found(kit, missing)) == "no_trust_file"
        monkeypatch.setenv(TRUST_VARIABLE, str(missing))
        assert code(lambda: found(kit)) == "no_trust_file"


def test_what_is_no_file_is_unreadable(tmp_path: Path) -> None:
    with approvals() as kit:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "long").write_bytes(b"x" * (MAX_SIGNED_BYTES + 1))
        (tmp_path / "long enough").write_bytes(b"x" * MAX_SIGNED_BYTES)
        (tmp_path / "folder").mkdir()
        for name in ("pipe", "long", "folder"):
            assert code(lambda: found(kit, tmp_path / name)) == "unreadable"
        assert code(lambda: found(kit, tmp_path / "long enough")) == "bad_envelope"


def test_a_file_that_lies_there_and_is_none_is_refused_and_not_passed_over() -> None:
    with approvals() as kit:
        beside(kit).write_bytes(b"{}")
        assert code(lambda: found(kit)) == "bad_envelope"
        beside_it = local_folder(kit.path) / TRUST_NAME
        beside_it.unlink()
        beside_it.symlink_to("nowhere")
        assert code(lambda: found(kit)) == "no_trust_file"


def test_a_ledger_opens_under_the_trust_file_that_is_found(tmp_path: Path) -> None:
    with approvals() as kit:
        view = kit.asked()
        beside(kit)
        with open_effects(kit.path, time=kit.ticks, settings=kit.settings) as ledger:
            assert isinstance(ledger, EffectLedger)
            assert ledger.trust is not None
            assert ledger.trust.sha256 == trust_sha256(kit.trust)
            assert ledger.grant(kit.signed(view)).authorized
        given = tmp_path / "given.json"
        given.write_bytes(signed(kit))
        with open_effects(kit.path, trust_path=given, time=kit.ticks, settings=kit.settings) as ledger:
            assert ledger.trust is not None


def test_a_store_without_one_opens_without_one() -> None:
    with approvals(begin=False) as kit, open_effects(kit.path, time=kit.ticks, settings=kit.settings) as ledger:
        assert ledger.trust is None


def test_somebody_has_the_roles_of_the_trust_file() -> None:
    with approvals() as kit:
        assert actor_of(kit.trust, "dan").roles == {Role.APPROVER, Role.OFFICER, Role.RECONCILER}
        assert kit.signed_trust is not None
        assert actor_of(kit.signed_trust, "exe").principal == "exe"
        for name in ("eve", "Dan", "", "dan "):
            assert code(lambda: actor_of(kit.trust, name)) == "unknown_principal"


def test_who_holds_a_key_that_counts_now_is_its_principal() -> None:
    with approvals() as kit:

        def held(name: str, ms: int) -> str:
            return actor_with_key(kit.trust, key(name), now=Now(ms, ms)).principal

        assert held("bob", START_MS) == "bob"
        assert held("bob", 0) == "bob"
        assert held("bob", KEY_ENDS_MS - 1) == "bob"
        assert code(lambda: held("bob", -1)) == "key_not_yet_valid"
        assert code(lambda: held("bob", KEY_ENDS_MS)) == "key_expired"
        assert code(lambda: held("eve", START_MS)) == "other_key"
        assert code(lambda: actor_with_key(kit.trust, key("bob"))) == "key_expired"  # by the clock of this machine


def test_a_policy_is_found_by_its_name() -> None:
    with approvals() as kit:
        two = kit.trust.policy_named("two")
        assert two is not None
        assert kit.trust.policy_sha256(two) == kit.two
        assert kit.trust.policy_named("Two") is None


def test_a_folder_that_nobody_can_look_into_may_hold_keys() -> None:
    with approvals() as kit:
        assert not is_local(kit.path)
        local_folder(kit.path).write_bytes(b"no folder")
        assert is_local(kit.path)


def test_the_one_on_record_is_found_after_the_keys_of_its_officers_are_over() -> None:
    with approvals() as kit:
        path, view = beside(kit), kit.asked()
        kit.ticks.tick(KEY_ENDS_MS - START_MS)
        with open_effects(kit.path, time=kit.ticks, settings=kit.settings) as ledger:
            assert ledger.trust is not None
            assert ledger.trust.signers == {"dan", "ola"}
            assert ledger.revoke(Actor("rev", frozenset({Role.REVOKER})), view.action_id).revoked
            assert ledger.follow_trust(signed(kit)).sha256 == trust_sha256(kit.trust)  # on record, and none else can be
            later = sign_trust(replace(kit.trust, serial=2), [key("dan"), key("ola")])
            assert code(lambda: ledger.follow_trust(later)) == "few_officers"
        path.write_bytes(later)
        assert code(lambda: found(kit)) == "few_officers"


def test_the_first_one_does_not_count_after_the_keys_of_its_officers_are_over(tmp_path: Path) -> None:
    with approvals(begin=False) as kit:
        path = tmp_path / "first.json"
        path.write_bytes(kit.by_officers(kit.trust).signed)
        kit.ticks.tick(KEY_ENDS_MS - START_MS)
        assert code(lambda: found(kit, path)) == "few_officers"


def test_one_that_only_lies_beside_a_store_is_not_put_in_use_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with approvals(begin=False) as kit:
        path = local_folder(kit.path) / TRUST_NAME
        path.parent.mkdir()
        path.write_bytes(kit.by_officers(kit.trust).signed)
        with pytest.raises(Refused, match="nobody has put it in use") as refusal:
            open_effects(kit.path, time=kit.ticks, settings=kit.settings)
        assert (refusal.value.code, "arl trust follow" in refusal.value.hint) == ("trust_not_in_use", True)
        assert trust_in_use(kit.path) is None
        monkeypatch.setenv(TRUST_VARIABLE, str(path))  # named, it is the first one
        open_effects(kit.path, time=kit.ticks, settings=kit.settings).close()
        monkeypatch.delenv(TRUST_VARIABLE)
        assert found(kit) is not None
        kit.signed_trust = kit.by_officers(kit.trust)
        kit.reopen()
