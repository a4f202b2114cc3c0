"""What the commands about trust files say to a new person: what comes first, what is missing, what nobody may do."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from agent_run_ledger import EffectLedger, EffectSettings, Opaque, RunLedger
from agent_run_ledger.effects.trusting import sign_trust
from agent_run_ledger.errors import LedgerError
from agent_run_ledger.keys import SigningKey
from tests.cli.conftest import Arl
from tests.cli.trusted_store import Trusted
from tests.unit.effects.trust_examples import key

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "approvals.md"
KEYS = "not_before = 2020-01-01, not_after = 2120-01-01"
NO_TRUST = "no_trust"


def described(folder: Path, *, head: str = "", roles: str = '"approver", "officer"') -> Path:
    """A trust file in words, of one person, whose key is nobody's."""
    path = folder / "trust.toml"
    held = f'keys = [{{ public_key = "{SigningKey.draw().public.hex()}", {KEYS} }}]'
    path.write_text(f'{head}\n[[principals]]\nname = "ann"\nroles = [{roles}]\n{held}\n', encoding="utf-8")
    return path


def test_the_store_comes_before_its_trust_file(arl: Arl, tmp_path: Path) -> None:
    words = ("trust", "new", described(tmp_path), "--output", "trust.json", "--json")
    error = arl(*words).error
    assert error["code"] == "no_store"
    assert "there is no store at" in error["message"]
    assert error["hint"].startswith("`arl init` makes the store")
    assert not Path("trust.json").exists()
    there = arl(*words, "--db", tmp_path / "elsewhere.db").error
    assert there["hint"].startswith(f"`arl init --db {tmp_path / 'elsewhere.db'}` makes")
    assert arl("init").code == 0
    assert arl(*words).code == 0


def test_a_description_that_names_its_ledger_needs_no_store(arl: Arl, tmp_path: Path) -> None:
    head = f'ledger_id = "{"ab" * 16}"'
    done = arl("trust", "new", described(tmp_path, head=head), "--output", "trust.json", "--json")
    assert done.json["ledger_id"] == "ab" * 16


def test_the_example_of_the_guide_gives_every_role_to_somebody(arl: Arl, tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    whole = re.sub(r'"[0-9a-f]+…"', lambda _: f'"{SigningKey.draw().public.hex()}"', example)
    assert {"support", "payments"} <= {one["name"] for one in tomllib.loads(whole)["principals"]}
    (tmp_path / "trust.toml").write_text(whole, encoding="utf-8")
    (tmp_path / "limits.rego").write_text("package limits", encoding="utf-8")
    assert arl("init").code == 0
    made = arl("trust", "new", "trust.toml", "--output", "trust.json", "--json")
    assert made.json["roles_of_nobody"] == []
    assert "nobody" not in re.sub("missing .*", "", arl("trust", "show", "trust.json").out)


def test_what_nobody_may_do_is_said_before_it_is_refused(arl: Arl, tmp_path: Path) -> None:
    assert arl("init").code == 0
    held = tmp_path / "ann.pem"
    assert arl("keys", "new", held, "--no-passphrase").code == 0
    path = described(tmp_path, roles='"approver", "officer", "revoker"')
    public = arl("keys", "show", held, "--json").json["public_key"]
    path.write_text(re.sub('public_key = "[^"]*"', f'public_key = "{public}"', path.read_text()), encoding="utf-8")
    nobody = "may ask (requester), carry out (executor), reconcile (reconciler), record a doubt (operator)"
    assert nobody in arl("trust", "new", path, "--output", "trust.json").out
    assert nobody in arl("trust", "sign", "trust.json", "--key", held).out
    shown = arl("trust", "show", "trust.json", "--json").json
    assert shown["roles_of_nobody"] == ["requester", "executor", "reconciler", "operator"]
    assert f"nobody   {nobody}" in arl("trust", "show", "trust.json").out
    asked = arl("trust", "follow", "trust.json")  # nobody is here to be asked
    assert asked.code == 2
    assert f"under it nobody {nobody}" in asked.err
    assert arl("trust", "follow", "trust.json", "--yes", "--json").json["roles_of_nobody"] == shown["roles_of_nobody"]


def test_who_has_still_to_sign_is_named_where_too_few_have(arl: Arl, db: Path, tmp_path: Path) -> None:
    trusted = Trusted(db)
    named = tmp_path / "next.toml"
    named.write_text(
        "serial = 2\nofficers_needed = 2\n"
        + "".join(
            f'[[principals]]\nname = "{name}"\nroles = ["officer"]\nkeys = [{{ public_key = "{public}", {KEYS} }}]\n'
            for name in ("ann", "ben")
            for public in [arl("keys", "show", trusted.key(name), "--json").json["public_key"]]
        ),
        encoding="utf-8",
    )
    where = ("--db", db, "--trust", trusted.trust)
    assert arl("trust", "new", named, "--output", "next.json", "--db", db).code == 0
    assert arl("trust", "sign", "next.json", "--key", trusted.key("ann"), *where).code == 0
    error = arl("trust", "follow", "next.json", *where, "--json").error
    assert error["code"] == "few_officers"
    assert "`arl trust cosign" in error["hint"]
    assert "the signature of ben" in error["hint"]


# -- a trust file that is on record, and not found -------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("trust", "follow", "next.json"), ("principals", "list"), ("approvals", "grant", "refund:1", "--yes")]
)
def test_one_on_record_that_is_not_found_is_to_be_named_and_no_other_made(
    arl: Arl, db: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    trusted = Trusted(db)
    trusted.propose("refund:1")
    (tmp_path / "next.json").write_bytes(sign_trust(replace(trusted.file, serial=2), [key("ann")]))
    error = arl(*words, "--db", db, "--json").error
    assert error["code"] == NO_TRUST
    assert "is under a trust file with the serial 1, and none is found" in error["message"]
    assert "--trust or AGENT_RUN_LEDGER_TRUST" in error["hint"]
    assert "init --local" not in error["hint"]


def test_a_program_without_the_trust_file_on_record_is_told_to_name_it(db: Path) -> None:
    trusted = Trusted(db)
    with pytest.raises(LedgerError) as caught:
        EffectLedger(db)
    told = [caught.value]
    with RunLedger(db_path=db, effects=EffectSettings(executor="payer")) as ledger:

        @ledger.effect(key="refund", target=Opaque(), approval="finance")
        def refund() -> None: ...

        with pytest.raises(LedgerError) as caught, ledger.run("r"):
            refund()
    told.append(caught.value)
    for error in told:
        assert (error.code, "EffectSettings(trust=…)" in error.hint) == (NO_TRUST, True)
        assert "init --local" not in error.hint
    assert trusted.trust.exists()
