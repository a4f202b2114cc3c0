"""`arl effects observe|reconcile|doubt|expire`: a doubt is closed by evidence and a second principal, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.effects import ActionState, ActionView, TargetClass
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl, Ended
from tests.cli.effect_store import Effects

Ask = Callable[..., Ended]


@pytest.fixture
def effects(db: Path) -> Iterator[Effects]:
    made = Effects(db)
    yield made
    check_ledger(db)


@pytest.fixture
def ask(arl: Arl, db: Path) -> Ask:
    """Run `arl effects WORDS` on the store, for JSON."""
    return lambda *words: arl("effects", *words, "--db", db, "--json")


def refused(ended: Ended, code: str) -> dict[str, str]:
    """The error of a refusal with this code."""
    assert ended.code != 0, ended.out
    assert ended.error["code"] == code, ended.error
    return ended.error


def state(effects: Effects, view: ActionView) -> ActionState:
    return effects.get(view).state


def drained(ask: Ask, named: str = "refund:1", *, by: str = "cat") -> str:
    """Put a drain on record, and return its evidence id."""
    done = ask("observe", named, "--drain", "path-dead", "--covers", "every_executor", "--as", by)
    assert done.code == 0, done.err
    return str(done.json["evidence_id"])


def test_a_silent_claim_is_closed_by_doubt_drain_look_and_a_second_principal(effects: Effects, ask: Ask) -> None:
    view = effects.silent("refund:1")
    assert ask("list", "--doubt").json["actions"][0]["stranded"] is True
    assert ask("doubt", "refund:1", "--expired", "--as", "ops").json["action"]["state"] == "unresolved"
    error = refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat"), "no_drain")
    assert f"arl effects observe {view.action_id.hex()} --drain expiry" in error["hint"]
    done = ask("observe", "refund:1", "--drain", "expiry", "--as", "cat").json
    assert done["action"]["drain"]["kind"] == "expiry"
    error = refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat"), "no_observation")
    assert f"arl effects observe {view.action_id.hex()} --found WHAT --after DRAIN" in error["hint"]
    ask("observe", "refund:1", "--found", "nothing", "--as", "cat")
    refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat"), "observation_before_drain")
    ask("observe", "refund:1", "--found", "nothing", "--after", done["evidence_id"][:13], "--as", "cat")
    refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "payer"), "reconciler_is_executor")
    assert state(effects, view) is ActionState.UNRESOLVED
    closed = ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat").json
    assert (closed["action"]["state"], closed["did"]) == ("not_executed", "decided that it did not happen")
    assert closed["action"]["next"][0]["step"] == "successor"
    assert ask("list", "--doubt").json["actions"] == []


def test_what_happened_is_decided_by_a_second_principal_on_what_was_seen(effects: Effects, ask: Ask) -> None:
    view = effects.doubted("refund:1")
    error = refused(ask("reconcile", "refund:1", "--happened", "--as", "cat"), "not_seen")
    assert f"arl effects observe {view.action_id.hex()} --found WHAT" in error["hint"]
    seen = ask("observe", "refund:1", "--found", "executed", "--yes", "--as", "payer", "--role", "executor")
    assert seen.code == 0
    refused(ask("reconcile", "refund:1", "--happened", "--as", "payer"), "reconciler_is_executor")
    refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat"), "seen_executed")
    refused(ask("observe", "refund:1", "--found", "nothing", "--as", "cat"), "contradicted")
    assert ask("reconcile", "refund:1", "--happened", "--as", "cat").json["action"]["state"] == "succeeded"
    assert state(effects, view) is ActionState.SUCCEEDED


def test_that_it_was_executed_is_asked_about(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1")
    before = effects.leaves()
    error = refused(ask("observe", "refund:1", "--found", "executed", "--as", "cat"), "not_confirmed")
    assert (error["hint"], effects.leaves()) == ("give --yes", before)
    assert ask("observe", "refund:1", "--found", "executed", "--yes", "--as", "cat").code == 0


def test_what_nobody_can_tell_is_no_success(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1")
    for found in ("nothing", "unknown"):
        assert ask("observe", "refund:1", "--found", found, "--as", "cat").code == 0
        refused(ask("reconcile", "refund:1", "--happened", "--as", "cat"), "not_seen")


def test_the_executors_own_word_never_shows_that_nothing_happened(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1")
    drain = drained(ask)
    done = ask("observe", "refund:1", "--found", "nothing", "--after", drain, "--as", "payer", "--role", "executor")
    assert done.code == 0
    error = refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat"), "executors_word")
    assert "somebody who is not the executor looks" in error["hint"]


def test_the_order_of_drain_and_look_is_said_by_who_looked_and_never_filled_in(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1")
    drain = drained(ask)
    seen = ask("observe", "refund:1", "--found", "nothing", "--as", "cat").json
    assert seen["action"]["observation"]["after"] is None
    assert "no drain before it" in seen["did"]
    ended = ask("observe", "refund:1", "--found", "nothing", "--after", "ab" * 8, "--as", "cat")
    refused(ended, "other_drain")
    refused(ask("observe", "refund:1", "--found", "nothing", "--after", drain[:7], "--as", "cat"), "usage")
    seen = ask("observe", "refund:1", "--found", "nothing", "--after", drain[:8], "--as", "cat").json
    assert seen["action"]["observation"]["after"] == drain


def test_a_look_that_names_a_drain_where_none_is_on_record_is_refused(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1")
    ended = ask("observe", "refund:1", "--found", "nothing", "--after", "ab" * 8, "--as", "cat")
    refused(ended, "other_drain")


def test_evidence_that_is_kept_has_its_digest_in_the_id(effects: Effects, ask: Ask, tmp_path: Path) -> None:
    effects.doubted("refund:1")
    kept = tmp_path / "statement.pdf"
    kept.write_bytes(b"what the bank says")
    ids = [
        str(ask("observe", "refund:1", "--found", "unknown", "--evidence", kept, "--as", "cat").json["evidence_id"])
        for _ in range(2)
    ]
    assert [one[32:] for one in ids] == [sha256(b"what the bank says").hexdigest()] * 2
    assert ids[0] != ids[1]
    assert ask("observe", "refund:1", "--found", "unknown", "--evidence", tmp_path / "none").code == 5
    plain = ask("observe", "refund:1", "--found", "unknown", "--as", "cat").json["evidence_id"]
    assert len(plain) == 32


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--found", "nothing", "--drain", "expiry"),
        ("--drain", "slowly"),
        ("--drain", "path-dead"),
        ("--drain", "expiry", "--covers", "worker"),
        ("--drain", "expiry", "--after", "ab" * 8),
    ],
)
def test_evidence_of_too_little_or_too_much_is_misuse(effects: Effects, ask: Ask, words: tuple[str, ...]) -> None:
    effects.doubted("refund:1")
    before = effects.leaves()
    ended = ask("observe", "refund:1", *words, "--as", "cat")
    assert (ended.code, ended.error["code"], effects.leaves()) == (2, "usage", before)


def test_what_a_receiver_cannot_tell_by_time_needs_a_dead_path(effects: Effects, ask: Ask) -> None:
    effects.silent("refund:1", TargetClass.N)
    refused(
        ask("observe", "refund:1", "--drain", "path-dead", "--covers", "worker", "--as", "payer"),
        "drain_by_executor",
    )
    dead = ("observe", "refund:1", "--drain", "path-dead", "--covers", "worker", "--as")
    error = refused(ask("observe", "refund:1", "--drain", "expiry", "--as", "cat"), "no_timer")
    assert "--drain path-dead --covers WHOSE" in error["hint"]
    done = ask(*dead, "cat").json
    assert done["action"]["drain"]["covers"] == "worker"


def test_a_fencing_receiver_is_asked_and_no_drain_takes_its_place(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1", TargetClass.F)
    error = refused(ask("observe", "refund:1", "--drain", "expiry", "--as", "cat"), "fence_instead")
    assert "fence" in error["hint"]
    refused(ask("reconcile", "refund:1", "--did-not-happen", "--as", "cat"), "not_asked")


def test_two_people_decide_where_the_ledger_wants_two(ask: Ask, db: Path) -> None:
    effects = Effects(db, people_for_not_executed=2)
    view = effects.doubted("refund:1")
    ask("observe", "refund:1", "--found", "nothing", "--after", drained(ask), "--as", "cat")
    for people in ((), ("--with", "cat")):
        error = refused(ask("reconcile", "refund:1", "--did-not-happen", *people, "--as", "cat"), "few_people")
        assert "--with NAME" in error["hint"]
    refused(
        ask("reconcile", "refund:1", "--did-not-happen", "--with", "payer", "--as", "cat"),
        "reconciler_is_executor",
    )
    assert state(effects, view) is ActionState.UNRESOLVED
    assert ask("reconcile", "refund:1", "--did-not-happen", "--with", "dan", "--as", "cat").code == 0
    told = ask("show", "refund:1").json["members"][0]["transitions"][-1]
    assert (told["event"], told["by"], told["with"]) == ("not_executed", "cat", ["dan"])


def test_a_write_off_takes_two_people_a_yes_and_that_nobody_can_look(effects: Effects, ask: Ask) -> None:
    view = effects.doubted("refund:1")
    off = ("reconcile", "refund:1", "--write-off", "--as", "cat")
    refused(ask(*off, "--nobody-can-look", "--with", "dan"), "not_confirmed")
    refused(ask(*off, "--nobody-can-look", "--yes"), "few_people")
    refused(ask(*off, "--with", "dan", "--yes"), "observable")
    refused(ask(*off, "--nobody-can-look", "--with", "payer", "--yes"), "reconciler_is_executor")
    assert state(effects, view) is ActionState.UNRESOLVED
    done = ask(*off, "--nobody-can-look", "--with", "dan", "--yes").json
    assert (done["action"]["state"], done["action"]["next"]) == ("written_off", [])


def test_where_somebody_looked_nothing_is_written_off(effects: Effects, ask: Ask) -> None:
    effects.doubted("refund:1")
    ask("observe", "refund:1", "--found", "nothing", "--as", "cat")
    off = ask("reconcile", "refund:1", "--write-off", "--nobody-can-look", "--with", "dan", "--yes", "--as", "cat")
    assert "arl effects show" in refused(off, "observable")["hint"]


def test_what_was_never_prepared_needs_more_than_this_databases_word(effects: Effects, ask: Ask) -> None:
    effects.claimed("refund:1")
    error = refused(ask("reconcile", "refund:1", "--never-prepared", "--as", "cat"), "needs_fence_or_drain")
    assert "arl effects doubt" in error["hint"]


@pytest.mark.parametrize("words", [(), ("--happened", "--did-not-happen"), ("--write-off", "--never-prepared")])
def test_what_became_of_it_is_said_once(effects: Effects, ask: Ask, words: tuple[str, ...]) -> None:
    effects.doubted("refund:1")
    assert ask("reconcile", "refund:1", *words, "--as", "cat").error["code"] == "usage"


def test_a_doubt_is_an_operators_or_the_clocks(effects: Effects, ask: Ask) -> None:
    view = effects.claimed("refund:1")
    error = refused(ask("doubt", "refund:1", "--expired", "--as", "ops"), "too_early")
    assert error["hint"] == "its permit may still live"
    error = refused(ask("doubt", "refund:1", "--role", "reconciler", "--as", "cat"), "not_operator")
    assert "--expired" in error["hint"]
    assert refused(ask("doubt", "refund:1", "--role", "approver", "--as", "cat"), "wrong_role")
    assert state(effects, view) is ActionState.CLAIMED
    assert ask("doubt", "refund:1", "--as", "ops").json["action"]["state"] == "unresolved"
    refused(ask("doubt", "refund:1", "--as", "ops"), "unresolved")


def test_a_window_that_is_over_is_closed_and_an_open_one_is_not(effects: Effects, ask: Ask) -> None:
    late, early = effects.expired("late"), effects.propose("early")
    assert ask("expire", "late", "--as", "ops").json["action"]["state"] == "expired"
    assert refused(ask("expire", "early", "--as", "ops"), "window_open")
    assert (state(effects, late), state(effects, early)) == (ActionState.EXPIRED, ActionState.PROPOSED)


def test_each_answer_says_that_nobody_checked_who_asks(effects: Effects, ask: Ask, arl: Arl, db: Path) -> None:
    effects.doubted("refund:1")
    done = ask("observe", "refund:1", "--found", "unknown", "--as", "cat").json
    assert done["asked_by"] == {"principal": "cat", "roles": ["reconciler"], "checked": False}
    said = arl("effects", "observe", "refund:1", "--found", "unknown", "--as", "cat", "--db", db)
    assert "asked by cat, reconciler (no trust file: the ledger believes it)" in said.err
    assert said.out.splitlines()[0].startswith("refund:1 (")


def test_who_asks_is_the_actor_of_the_settings_where_nobody_says(
    effects: Effects, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects.doubted("refund:1")
    monkeypatch.setenv("AGENT_RUN_LEDGER_ACTOR", "dora")
    assert ask("observe", "refund:1", "--found", "unknown").json["asked_by"]["principal"] == "dora"


def test_the_command_line_never_opens_a_ledger_with_less_than_it_had(ask: Ask, db: Path) -> None:
    effects = Effects(db, bound_ms=2_000, people_for_not_executed=3, officers_needed=2, max_permit_ms=50_000)
    effects.claimed("refund:1")
    assert ask("doubt", "refund:1", "--as", "ops").code == 0
    with effects.open() as ledger:  # would be refused if the command had been recorded with more
        assert ledger.inspect("refund:1")[0].state is ActionState.UNRESOLVED


def test_a_store_without_authority_is_refused(arl: Arl, store: Path) -> None:
    ended = arl("effects", "doubt", "x", "--db", store, "--json")
    assert (ended.code, ended.error["code"]) == (1, "no_authority")
    assert f"arl init --db {store}" in ended.error["hint"]


def test_the_whole_of_it_in_processes_of_their_own(effects: Effects, shell: Arl, db: Path) -> None:
    view = effects.silent("refund:1")

    def run(*words: Any) -> Ended:
        return shell("effects", *words, "--db", db, "--json")

    assert run("doubt", "refund:1", "--expired", "--as", "ops").code == 0
    drain = run("observe", "refund:1", "--drain", "expiry", "--as", "cat").json["evidence_id"]
    assert run("observe", "refund:1", "--found", "nothing", "--after", drain, "--as", "cat").code == 0
    assert run("reconcile", "refund:1", "--did-not-happen", "--as", "cat").code == 0
    assert state(effects, view) is ActionState.NOT_EXECUTED
