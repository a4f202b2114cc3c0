"""Under a trust file a key says who asks and decides: each command, and what a name is still good for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_run_ledger.effects import ActionState, ActionView
from agent_run_ledger.kernel.effects import Terms
from agent_run_ledger.keys import Secret, read_key, write_key
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl, Ended
from tests.cli.effect_store import PAY, Effects, described
from tests.cli.trusted_store import DAY_MS, Trusted

Ask = Callable[..., Ended]
KEY_NEEDED = "key_needed"


@pytest.fixture
def effects(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trusted]:
    made = Trusted(db)
    monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(made.trust))
    monkeypatch.setenv("AGENT_RUN_LEDGER_ACTOR", "cat")  # a name of the settings decides nothing either
    yield made
    check_ledger(db)


@pytest.fixture
def ask(arl: Arl, db: Path) -> Ask:
    """Run `arl effects WORDS` on the store, for JSON."""
    return lambda *words: arl("effects", *words, "--db", db, "--json")


def refused(ended: Ended, code: str) -> dict[str, str]:
    assert ended.code != 0, ended.out
    assert ended.error["code"] == code, ended.error
    return ended.error


def terms(effects: Trusted, key: str) -> Terms:
    store = open_sqlite(effects.path, create=False, readonly=True)
    try:
        return store.reader().effects.members(key)[-1].action.terms
    finally:
        store.close()


def drained(effects: Trusted, ask: Ask) -> str:
    drain = ("observe", "refund:1", "--drain", "path-dead", "--covers", "every_executor")
    done = ask(*drain, "--key", effects.key("cat"))
    assert done.code == 0, done.err
    return str(done.json["evidence_id"])


def looked(effects: Trusted, ask: Ask) -> ActionView:
    """A doubt with a drain, and a look after it that saw nothing."""
    view = effects.doubted("refund:1")
    look = ("observe", "refund:1", "--found", "nothing", "--after", drained(effects, ask))
    assert ask(*look, "--key", effects.key("cat")).code == 0
    return view


def test_a_silent_claim_is_closed_by_the_keys_of_those_with_the_roles(effects: Trusted, ask: Ask) -> None:
    view = effects.silent("refund:1")
    done = ask("doubt", "refund:1", "--expired", "--key", effects.key("ops")).json
    assert done["asked_by"] == {"principal": "ops", "roles": ["operator"], "checked": True}
    assert not any("no trust file" in words for words in done["not_protected"])
    cat = ("--key", effects.key("cat"))
    drain = ask("observe", "refund:1", "--drain", "expiry", *cat).json["evidence_id"]
    assert ask("observe", "refund:1", "--found", "nothing", "--after", drain, *cat).code == 0
    done = ask("reconcile", "refund:1", "--did-not-happen", *cat).json
    assert (done["action"]["state"], done["asked_by"]["principal"]) == ("not_executed", "cat")
    assert effects.get(view).state is ActionState.NOT_EXECUTED
    told = ask("show", "refund:1").json["members"][0]["transitions"]
    assert [one["by"] for one in told][-4:] == ["ops", "cat", "cat", "cat"]


DECISIONS = (
    ("doubt", "refund:1"),
    ("doubt", "refund:1", "--expired"),
    ("expire", "refund:1"),
    ("observe", "refund:1", "--drain", "path-dead", "--covers", "worker"),
    ("observe", "refund:1", "--found", "executed", "--yes"),
    ("reconcile", "refund:1", "--did-not-happen"),
    ("reconcile", "refund:1", "--happened"),
    ("reconcile", "refund:1", "--never-prepared"),
    ("reconcile", "refund:1", "--write-off", "--nobody-can-look", "--yes"),
)


@pytest.mark.parametrize("words", DECISIONS, ids=" ".join)
def test_a_name_alone_decides_nothing(effects: Trusted, ask: Ask, words: tuple[str, ...]) -> None:
    effects.claimed("refund:1")
    before = effects.leaves()
    for name in ("cat", "ops", "watcher", "nobody"):
        assert "--key FILE" in refused(ask(*words, "--as", name), KEY_NEEDED)["hint"]
    refused(ask(*words, "--role", "operator"), KEY_NEEDED)
    refused(ask(*words, "--role", "operator", "--key", effects.key("ops")), KEY_NEEDED)
    refused(ask(*words, "--as", "ops", "--key", effects.key("ops")), "usage")
    assert "--key FILE" in refused(ask(*words), "usage")["hint"], "nor does the actor of the settings"
    assert effects.leaves() == before


@pytest.mark.parametrize("words", DECISIONS, ids=" ".join)
def test_a_key_decides_only_what_its_roles_may_and_while_it_counts(
    effects: Trusted, ask: Ask, words: tuple[str, ...]
) -> None:
    effects.doubted("refund:1") if words[0] == "reconcile" else effects.claimed("refund:1")
    if "--happened" in words:
        assert ask("observe", "refund:1", "--found", "executed", "--yes", "--key", effects.key("cat")).code == 0
    before = effects.leaves()
    for name, code in (("rita", "wrong_role"), ("nobody", "other_key"), ("late", "key_expired")):
        refused(ask(*words, "--key", effects.key(name)), code)
    assert effects.leaves() == before


EXECUTED = ("observe", "refund:1", "--found", "executed", "--yes")


def test_an_operators_doubt_is_no_reconcilers(effects: Trusted, ask: Ask) -> None:
    effects.claimed("refund:1")
    refused(ask("doubt", "refund:1", "--key", effects.key("cat")), "not_operator")
    assert ask("doubt", "refund:1", "--key", effects.key("ops")).json["action"]["state"] == "unresolved"


def test_a_window_that_is_over_is_closed_by_a_key(effects: Trusted, ask: Ask) -> None:
    effects.expired("late")
    assert ask("expire", "late", "--key", effects.key("ops")).json["action"]["state"] == "expired"


def test_a_program_without_keys_may_look_by_name_and_nobody_else(effects: Trusted, ask: Ask, arl: Arl) -> None:
    effects.doubted("refund:1")
    look = ("observe", "refund:1", "--found", "unknown")
    done = ask(*look, "--as", "payer").json
    assert done["asked_by"] == {"principal": "payer", "roles": ["executor"], "checked": False}
    said = arl("effects", *look, "--as", "watcher", "--db", effects.path)
    assert "asked by watcher, reconciler (a program without keys: the ledger believes it)" in said.err
    before = effects.leaves()
    for name, code in (("cat", KEY_NEEDED), ("bot", KEY_NEEDED), ("boss", KEY_NEEDED), ("eve", "unknown_principal")):
        refused(ask(*look, "--as", name), code)
    refused(ask(*look, "--as", "agent"), "wrong_role")
    assert effects.leaves() == before


def test_a_program_by_name_cannot_say_that_it_was_executed(effects: Trusted, ask: Ask) -> None:
    effects.doubted("refund:1")
    before = effects.leaves()
    for name in ("payer", "watcher"):
        assert "--key FILE" in refused(ask(*EXECUTED, "--as", name), KEY_NEEDED)["hint"]
    assert effects.leaves() == before
    assert ask("reconcile", "refund:1", "--did-not-happen", "--key", effects.key("cat")).error["code"] == "no_drain"
    assert ask(*EXECUTED, "--key", effects.key("cat")).json["asked_by"]["checked"] is True


def test_a_program_by_name_settles_nothing(effects: Trusted, ask: Ask) -> None:
    effects.doubted("refund:1")
    assert ask("observe", "refund:1", "--found", "nothing", "--as", "payer").code == 0
    assert ask("observe", "refund:1", "--found", "executed", "--yes", "--key", effects.key("cat")).code == 0
    refused(ask("reconcile", "refund:1", "--happened", "--as", "watcher"), KEY_NEEDED)
    done = ask("reconcile", "refund:1", "--happened", "--key", effects.key("bot"))
    assert done.json["action"]["state"] == "succeeded"


@pytest.fixture
def two(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trusted]:
    made = Trusted(db, people_for_not_executed=2)
    monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(made.trust))
    yield made
    check_ledger(db)


def test_those_who_decide_together_each_need_a_key(two: Trusted, ask: Ask) -> None:
    view = looked(two, ask)
    did_not = ("reconcile", "refund:1", "--did-not-happen", "--key", two.key("cat"))
    assert "--with-key FILE" in refused(ask(*did_not), "few_people")["hint"]
    assert "--with-key FILE" in refused(ask(*did_not, "--with", "dan"), KEY_NEEDED)["hint"]
    refused(ask(*did_not, "--with", "dan", "--with-key", two.key("dan")), KEY_NEEDED)
    for name, code in (
        ("cat", "few_people"),
        ("nobody", "other_key"),
        ("late", "key_expired"),
        ("ann", "wrong_role"),
        ("bot", "no_person"),
    ):
        refused(ask(*did_not, "--with-key", two.key(name)), code)
    by_bot = ("reconcile", "refund:1", "--did-not-happen", "--key", two.key("bot"))
    refused(ask(*by_bot, "--with-key", two.key("dan")), "no_person")
    assert two.get(view).state is ActionState.UNRESOLVED
    assert ask(*did_not, "--with-key", two.key("dan")).json["action"]["state"] == "not_executed"
    told = ask("show", "refund:1").json["members"][0]["transitions"][-1]
    assert (told["event"], told["by"], told["with"]) == ("not_executed", "cat", ["dan"])


def test_a_write_off_takes_the_keys_of_two_people(effects: Trusted, ask: Ask) -> None:
    effects.doubted("refund:1")
    way = next(one for one in ask("show", "refund:1").json["members"][0]["next"] if one["step"] == "write_off")
    assert "--with-key FILE" in way["command"]
    off = ("reconcile", "refund:1", "--write-off", "--nobody-can-look", "--yes", "--key", effects.key("cat"))
    refused(ask(*off), "few_people")
    refused(ask(*off, "--with", "dan"), KEY_NEEDED)
    done = ask(*off, "--with-key", effects.key("dan")).json
    assert (done["action"]["state"], done["action"]["next"]) == ("written_off", [])


def test_each_key_has_a_passphrase_of_its_own(two: Trusted, ask: Ask, tmp_path: Path) -> None:
    looked(two, ask)
    words: dict[str, Path] = {}
    for name in ("cat", "dan"):
        write_key(tmp_path / name, read_key(two.key(name)), passphrase=Secret(f"the word of {name}".encode()))
        words[name] = tmp_path / f"{name}.word"
        words[name].write_text(f"the word of {name}\n")
        words[name].chmod(0o600)
    keys = ("--key", tmp_path / "cat", "--with-key", tmp_path / "dan")
    given = ("--passphrase-file", words["cat"])
    did_not = ("reconcile", "refund:1", "--did-not-happen", *keys, *given)
    refused(ask(*did_not), "passphrase_needed")
    many = ("--with-passphrase-file", words["dan"], "--with-passphrase-file", words["cat"])
    refused(ask(*did_not, *many), "usage")
    done = ask(*did_not, "--with-passphrase-file", words["dan"])
    assert done.code == 0, done.err
    assert "the word" not in done.out + done.err


@pytest.mark.parametrize("words", [("--happened",), ("--never-prepared",)])
def test_nobody_is_named_for_what_one_decides_alone(effects: Trusted, ask: Ask, words: tuple[str, ...]) -> None:
    for more in (("--with", "dan"), ("--with-key", effects.key("dan"))):
        refused(ask("reconcile", "refund:1", *words, *more, "--key", effects.key("cat")), "usage")


def test_a_key_without_a_trust_file_is_nobodys(ask: Ask, db: Path, tmp_path: Path) -> None:
    effects = Effects(db)
    effects.claimed("refund:1")
    file = tmp_path / "dan.pem"
    refused(ask("doubt", "refund:1", "--key", file), "no_trust")
    write_off = ("reconcile", "refund:1", "--write-off", "--nobody-can-look", "--yes", "--as", "cat")
    refused(ask(*write_off, "--with-key", file), "no_trust")


def test_a_trust_file_that_is_on_record_and_not_found_lets_nobody_decide(
    effects: Trusted, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects.claimed("refund:1")
    monkeypatch.delenv("AGENT_RUN_LEDGER_TRUST")
    refused(ask("doubt", "refund:1", "--as", "ops"), "no_trust")
    assert ask("doubt", "refund:1", "--trust", effects.trust, "--key", effects.key("ops")).code == 0


# -- actions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def act(arl: Arl, db: Path) -> Ask:
    """Run `arl actions WORDS` on the store, for JSON."""
    return lambda *words: arl("actions", *words, "--db", db, "--json")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return described(tmp_path, method="POST", path="/refunds", json={"n": 1})


REFUND = ("--key", "refund:1", "--target", PAY, "--executor", "payer")


def test_a_policy_is_named_and_its_numbers_are_those_of_the_trust_file(effects: Trusted, act: Ask, file: Path) -> None:
    done = act("propose", file, *REFUND, "--approval", "finance", "--as", "agent").json
    assert (done["asked_by"]["principal"], done["asked_by"]["checked"]) == ("agent", False)
    asked = terms(effects, "refund:1")
    assert (asked.policy_sha256, asked.approvals_needed) == (effects.digest("finance"), 1)
    assert asked.dispatch_before_ms - asked.not_before_ms == DAY_MS // 2


def test_who_asks_is_said_by_a_key_or_is_a_program_without_one(effects: Trusted, act: Ask, file: Path) -> None:
    words = ("propose", file, *REFUND, "--approval", "finance")
    before = effects.leaves()
    assert "--key-file" not in refused(act(*words, "--as", "eve"), "unknown_principal")["message"]
    for name in ("rita", "boss", "cat"):
        refused(act(*words, "--as", name), KEY_NEEDED)
    refused(act(*words, "--as", "payer"), "wrong_role")
    refused(act(*words, "--as", "agent", "--role", "requester"), KEY_NEEDED)
    refused(act(*words, "--as", "agent", "--key-file", effects.key("rita")), "usage")
    refused(act(*words, "--key-file", effects.key("cat")), "wrong_role")
    refused(act(*words), "usage")
    assert effects.leaves() == before
    done = act(*words, "--key-file", effects.key("rita")).json
    assert done["asked_by"] == {"principal": "rita", "roles": ["requester"], "checked": True}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--approval", "nobody"), "no_policy"),
        (("--approval", "ab" * 32), "no_policy"),
        (("--approval", "finance", "--approvals", "2"), "other_count"),
        (("--approval", "finance", "--window", "24h"), "window_too_long"),
        (("--approval", "finance", "--executor", "agent"), "wrong_role"),
        (("--approval", "finance", "--executor", "nobody"), "wrong_role"),
    ],
)
def test_what_the_trust_file_does_not_allow_is_not_asked_for(
    effects: Trusted, act: Ask, file: Path, options: tuple[str, ...], code: str
) -> None:
    before = effects.leaves()
    refused(act("propose", file, *REFUND, *options, "--as", "agent"), code)
    assert effects.leaves() == before


def test_a_policy_may_be_named_by_its_digest_too(effects: Trusted, act: Ask, file: Path) -> None:
    words = ("propose", file, *REFUND, "--approval", effects.digest("other").hex(), "--as", "agent")
    assert act(*words).code == 0
    asked = terms(effects, "refund:1")
    assert asked.dispatch_before_ms - asked.not_before_ms == DAY_MS


def test_a_successor_is_asked_for_in_the_same_way(effects: Trusted, act: Ask, ask: Ask) -> None:
    effects.expired("refund:1")
    assert ask("expire", "refund:1", "--key", effects.key("ops")).code == 0
    refused(act("successor", "refund:1", "--as", "rita"), KEY_NEEDED)
    done = act("successor", "refund:1", "--as", "agent").json
    assert (done["action"]["state"], done["action"]["approvals"]) == ("proposed", [])
    asked = terms(effects, "refund:1")
    assert asked.policy_sha256 == effects.digest("finance")
    assert asked.dispatch_before_ms - asked.not_before_ms == DAY_MS // 2
    effects.expired("refund:2")
    ask("expire", "refund:2", "--key", effects.key("ops"))
    assert act("successor", "refund:2", "--approval", "other", "--key-file", effects.key("rita")).code == 0
    assert terms(effects, "refund:2").policy_sha256 == effects.digest("other")


# -- one machine ------------------------------------------------------------------------------------------------------


def test_on_one_machine_the_local_key_and_the_local_agent_are_meant(arl: Arl, db: Path, file: Path) -> None:
    assert arl("init", "--local", "--name", "ann", "--db", db).code == 0
    words = ("--key", "refund:1", "--target", PAY, "--executor", "worker", "--approval", "local")
    done = arl("actions", "propose", file, *words, "--window", "1m", "--db", db, "--json")
    assert done.json["asked_by"] == {"principal": "agent", "roles": ["requester"], "checked": False}
    assert any("local trust" in said for said in done.json["not_protected"])
    assert arl("approvals", "grant", "refund:1", "--yes", "--db", db).code == 0
    refused(arl("effects", "expire", "refund:1", "--db", db, "--json"), "window_open")
    refused(arl("effects", "expire", "refund:1", "--as", "operator", "--db", db, "--json"), KEY_NEEDED)
    with_approver = ("--key", f"{db}.local/approver.pem", "--db", db, "--json")
    refused(arl("effects", "expire", "refund:1", *with_approver), "wrong_role")
    check_ledger(db)
