"""`arl keys`, `arl principals` and `arl trust`: from keys and a description to a trust file that people signed."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import EffectLedger, open_effects
from agent_run_ledger.cli import key_files
from agent_run_ledger.kernel.effects import Now
from agent_run_ledger.ledger.authority import find_authority, trust_path_of
from agent_run_ledger.ledger.local_trust import TRUST_NAME, local_folder
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from tests.cli.conftest import Arl

PEOPLE = ("ann", "bob", "dan")


@pytest.fixture
def desk(arl: Arl, db: Path, tmp_path: Path) -> Path:
    """A store with authority, and the keys of three people beside it, in a folder of their own."""
    assert arl("init", "--db", db).code == 0
    (tmp_path / "keys").mkdir()
    for name in PEOPLE:
        assert arl("keys", "new", tmp_path / "keys" / f"{name}.pem", "--no-passphrase").code == 0
    return db


def key(desk: Path, name: str) -> Path:
    return desk.parent / "keys" / f"{name}.pem"


def public(arl: Arl, desk: Path, name: str) -> str:
    return str(arl("keys", "show", key(desk, name), "--json").json["public_key"])


def description(
    arl: Arl,
    desk: Path,
    *,
    serial: int = 1,
    officers: int = 2,
    window: str = "24h",
    more: str = "",
    until: str = "2120-01-01",
) -> Path:
    """A trust file in words: ann asks and approves, bob and dan approve and are the officers, exe carries out."""
    lines = [f"serial = {serial}", f"officers_needed = {officers}", more]
    roles = {"ann": ["requester", "approver"], "bob": ["approver", "officer"], "dan": ["approver", "officer"]}
    for name in PEOPLE:
        lines += [
            "[[principals]]",
            f'name = "{name}"',
            f"roles = {json.dumps(roles[name])}",
            f'keys = [{{public_key = "{public(arl, desk, name)}", not_before = 2020-01-01, not_after = "{until}"}}]',
        ]
    lines += ["[[principals]]", 'name = "exe"', 'kind = "automatic"', 'roles = ["executor"]']
    lines += ["[[policies]]", 'name = "two"', "approvals_needed = 2", "people_needed = 2"]
    lines += [f"approvers = {json.dumps(PEOPLE)}", f'max_window = "{window}"']
    path = desk.parent / f"trust {serial}.toml"
    path.write_text("\n".join(lines))
    return path


def made(arl: Arl, desk: Path, *signers: str, **words: Any) -> Path:
    """A trust file of that description, signed by these."""
    words_in = description(arl, desk, **words)
    path = words_in.with_suffix(".json")
    done = arl("trust", "new", words_in, "--output", path, "--db", desk)
    assert done.code == 0, done.err
    for number, name in enumerate(signers):
        done = arl("trust", "cosign" if number else "sign", path, "--key", key(desk, name))
        assert done.code == 0, done.err
    return path


def on_record(desk: Path) -> int | None:
    store = open_sqlite(desk, create=False, readonly=True)
    try:
        found = store.reader().effects.trust()
        return None if found is None else found.serial
    finally:
        store.close()


def test_a_key_file_is_its_owners_and_shows_its_public_half_only(arl: Arl, tmp_path: Path) -> None:
    path, word = tmp_path / "ann.pem", tmp_path / "word"
    word.write_text("open sesame\n")
    word.chmod(0o600)
    new = arl("keys", "new", path, "--passphrase-file", word, "--json").json
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert new["encrypted"] is True
    assert b"ENCRYPTED" in path.read_bytes()
    shown = arl("keys", "show", path, "--passphrase-file", word)
    assert new["key_id"] in shown.out
    assert new["public_key"] in shown.out
    assert "PRIVATE" not in shown.out + shown.err
    assert arl("keys", "show", path, "--json").error["code"] == "passphrase_needed"
    before = path.read_bytes()
    assert arl("keys", "new", path, "--no-passphrase", "--json").error["code"] == "file_exists"
    assert path.read_bytes() == before


def test_a_key_without_a_passphrase_is_asked_for_and_said(arl: Arl, shell: Arl, tmp_path: Path) -> None:
    refused = shell("keys", "new", tmp_path / "ann.pem", "--json")
    assert refused.code == 2
    assert "--no-passphrase" in refused.error["hint"]
    assert not (tmp_path / "ann.pem").exists()
    assert (
        "whoever can read this file can sign with it" in arl("keys", "new", tmp_path / "a.pem", "--no-passphrase").out
    )
    both = arl("keys", "new", tmp_path / "b.pem", "--no-passphrase", "--passphrase-file", tmp_path / "word")
    assert both.code == 2


def test_a_trust_file_is_complete_when_its_officers_signed_it(arl: Arl, desk: Path) -> None:
    path = made(arl, desk)
    for signers, missing in (((), "2 more of bob, dan"), (("bob",), "1 more of dan"), (("bob", "dan"), "nobody")):
        if signers:
            done = arl("trust", "cosign" if len(signers) > 1 else "sign", path, "--key", key(desk, signers[-1]))
            assert done.code == 0, done.err
        shown = arl("trust", "show", path, "--db", desk)
        assert f"missing  {missing}" in shown.out
        told = arl("trust", "show", path, "--db", desk, "--json").json
        assert (told["signers"], told["complete"]) == (sorted(signers), len(signers) == 2)
    assert arl("trust", "sign", path, "--key", key(desk, "bob"), "--json").error["code"] == "signed_already"
    assert arl("trust", "cosign", path, "--key", key(desk, "bob"), "--json").error["code"] == "signed_already"


def test_who_is_no_officer_is_told_so_and_signs_nothing(arl: Arl, desk: Path) -> None:
    path = made(arl, desk)
    for name, verb in (("ann", "sign"), ("bob", "sign"), ("ann", "cosign")):
        before = path.read_bytes()
        done = arl("trust", verb, path, "--key", key(desk, name), "--json")
        if name == "bob":
            assert done.code == 0, done.err
            continue
        assert (done.error["code"], path.read_bytes()) == ("not_an_officer", before)
        assert "would count for nothing" in done.err
    assert arl("trust", "follow", path, "--yes", "--db", desk, "--json").error["code"] == "few_officers"
    assert on_record(desk) is None


def test_an_officer_of_the_one_in_use_signs_the_one_that_takes_their_power(arl: Arl, desk: Path) -> None:
    arl("trust", "follow", made(arl, desk, "bob", "dan"), "--yes", "--db", desk)
    words = description(arl, desk, serial=2, officers=1)
    words.write_text(words.read_text().replace('"dan"\nroles = ["approver", "officer"]', '"dan"\nroles = ["approver"]'))
    path = words.with_suffix(".json")
    arl("trust", "new", words, "--output", path, "--db", desk)
    alone = ("trust", "sign", path, "--key", key(desk, "dan"), "--json")
    assert arl(*alone).error["code"] == "not_an_officer"
    assert arl(*alone, "--db", desk).code == 0
    assert arl("trust", "cosign", path, "--key", key(desk, "bob")).code == 0
    assert arl("trust", "follow", path, "--db", desk).code == 0
    assert on_record(desk) == 2


def test_the_first_one_is_put_in_use_by_who_compared_its_digest(arl: Arl, shell: Arl, desk: Path) -> None:
    path = made(arl, desk, "bob", "dan")
    digest = arl("trust", "show", path, "--db", desk, "--json").json["sha256"]
    asked = shell("trust", "follow", path, "--db", desk)
    assert asked.code == 2
    assert digest in asked.err
    assert on_record(desk) is None
    done = arl("trust", "follow", path, "--yes", "--db", desk)
    assert done.code == 0, done.err
    assert on_record(desk) == 1
    installed = local_folder(desk) / TRUST_NAME
    assert installed.read_bytes() == path.read_bytes()
    with open_effects(desk) as ledger:
        assert ledger.trust is not None
        assert ledger.trust.sha256.hex() == digest
    assert arl("trust", "show", "--db", desk, "--json").json["in_use"] is True


def test_the_next_one_follows_when_officers_of_both_signed_it(arl: Arl, desk: Path) -> None:
    arl("trust", "follow", made(arl, desk, "bob", "dan"), "--yes", "--db", desk)
    too_few = made(arl, desk, "bob", serial=2, window="1h")
    assert arl("trust", "follow", too_few, "--db", desk, "--json").error["code"] == "few_officers"
    assert on_record(desk) == 1
    arl("trust", "cosign", too_few, "--key", key(desk, "dan"))
    assert "not the one on record, which has the serial 1" in arl("trust", "show", too_few, "--db", desk).out
    done = arl("trust", "follow", too_few, "--db", desk, "--json").json
    assert (done["changed"], done["serial"], done["signers"]) == (True, 2, ["bob", "dan"])
    assert on_record(desk) == 2
    again = arl("trust", "follow", too_few, "--db", desk, "--json").json
    assert again["changed"] is False
    check_ledger(desk)


def test_an_older_one_that_is_put_back_is_refused_and_the_right_one_helps(arl: Arl, desk: Path) -> None:
    first, second = made(arl, desk, "bob", "dan"), made(arl, desk, "bob", "dan", serial=2)
    for path in (first, second):
        arl("trust", "follow", path, "--yes", "--db", desk)
    installed = local_folder(desk) / TRUST_NAME
    installed.write_bytes(first.read_bytes())
    refused = arl("approvals", "reject", "x", "--db", desk, "--json")
    assert refused.error["code"] == "unknown_action"
    with pytest.raises(Exception, match="give the one with the serial 2"):
        open_effects(desk)
    assert arl("trust", "follow", first, "--yes", "--db", desk, "--json").error["code"] == "other_trust"
    assert "bad" in next(line for line in arl("doctor", "--db", desk).out.splitlines() if "trust file" in line)
    assert "older than the one on record" in arl("trust", "show", "--db", desk).out
    assert arl("trust", "follow", second, "--db", desk).code == 0
    open_effects(desk).close()


def test_an_interruption_between_the_record_and_the_file_is_made_good(arl: Arl, desk: Path) -> None:
    first, second = made(arl, desk, "bob", "dan"), made(arl, desk, "bob", "dan", serial=2)
    arl("trust", "follow", first, "--yes", "--db", desk)
    authority = find_authority(desk)
    assert authority is not None
    with EffectLedger(desk, trust=authority.signed) as ledger:
        ledger.follow_trust(second.read_bytes())
    assert find_authority(desk) == authority
    assert arl("trust", "follow", second, "--db", desk).code == 0
    assert trust_path_of(desk).read_bytes() == second.read_bytes()
    open_effects(desk).close()


def test_a_trust_file_elsewhere_stays_elsewhere(arl: Arl, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, place = made(arl, desk, "bob", "dan"), desk.parent / "etc" / "trust.json"
    assert arl("trust", "follow", path, "--yes", "--trust", place, "--db", desk).code == 0
    assert place.read_bytes() == path.read_bytes()
    assert not local_folder(desk).exists()
    assert arl("principals", "list", "--db", desk, "--json").error["code"] == "no_trust"
    monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(place))
    listed = arl("principals", "list", "--db", desk, "--json").json
    assert [one["name"] for one in listed["principals"]] == ["ann", "bob", "dan", "exe"]
    assert "local trust" not in arl("doctor", "--db", desk).out


def test_a_principal_is_shown_with_keys_and_policies(arl: Arl, desk: Path) -> None:
    arl("trust", "follow", made(arl, desk, "bob", "dan"), "--yes", "--db", desk)
    bob = arl("principals", "show", "bob", "--db", desk, "--json").json
    assert (bob["kind"], bob["roles"], bob["policies"]) == ("person", ["approver", "officer"], ["two"])
    assert bob["keys"][0]["counts_now"] is True
    assert bob["keys"][0]["not_after"] == "2120-01-01T00:00:00.000Z"
    assert "two" in arl("principals", "show", "bob", "--db", desk).out
    assert "exe" in arl("principals", "list", "--db", desk).out
    assert arl("principals", "show", "eve", "--db", desk, "--json").error["code"] == "unknown_principal"


BAD: dict[str, tuple[str, str]] = {
    "a word that is not there": ('colour = "red"', "bad_trust"),
    "no TOML": ("= 1", "bad_description"),
    "two officers of whom one is there": ("", "few_officers"),
    "a window that is none": ("", "bad_description"),
    "a date in the place of a number": ("colour = 2020-01-01", "bad_description"),
    "a number that is none": ("colour = nan", "bad_trust"),
    "rules that are not there": (
        'principals = [{name = "bot", roles = ["approver"], kind = "automatic", rules = "missing"}]',
        "bad_description",
    ),
    "the ledger of nobody": ('ledger_id = "12"', "bad_ledger_id"),
}


@pytest.mark.parametrize("flaw", BAD)
def test_a_description_that_is_wrong_makes_nothing(arl: Arl, desk: Path, flaw: str) -> None:
    more, code = BAD[flaw]
    officers, window = (9 if code == "few_officers" else 2), ("for ever" if "window" in flaw else "24h")
    path = description(arl, desk, officers=officers, window=window, more=more)
    if more.startswith("principals"):
        path.write_text(more)
    refused = arl("trust", "new", path, "--output", desk.parent / "out.json", "--db", desk, "--json")
    assert (refused.code, refused.error["code"]) == (1, code)
    assert not (desk.parent / "out.json").exists()


@pytest.mark.parametrize(
    "text", ["[]", "1", "{", '{"principals": 1}', '{"principals": [1]}', '{"policies": [[]]}', "\xff"]
)
def test_a_json_description_that_is_none_is_refused(arl: Arl, desk: Path, text: str) -> None:
    path = desk.parent / "words.json"
    path.write_bytes(text.encode("latin-1"))
    refused = arl("trust", "new", path, "--output", desk.parent / "out.json", "--db", desk, "--json")
    assert (refused.code, refused.error["code"]) == (1, "bad_description")


def test_no_trust_file_is_written_over_by_a_new_one(arl: Arl, desk: Path) -> None:
    path = made(arl, desk, "bob")
    before = path.read_bytes()
    again = arl("trust", "new", description(arl, desk), "--output", path, "--db", desk, "--json")
    assert again.error["code"] == "file_exists"
    assert path.read_bytes() == before


def test_a_signature_can_go_to_another_file(arl: Arl, desk: Path) -> None:
    path, other = made(arl, desk), desk.parent / "signed.json"
    before = path.read_bytes()
    assert arl("trust", "sign", path, "--key", key(desk, "bob"), "--output", other).code == 0
    assert path.read_bytes() == before
    assert arl("trust", "cosign", path, "--key", key(desk, "dan")).code == 2
    assert arl("trust", "show", other, "--db", desk, "--json").json["signers"] == ["bob"]


def test_the_rules_of_an_automatic_approver_are_read_from_their_file(arl: Arl, desk: Path) -> None:
    rules = desk.parent / "rules.txt"
    words = description(arl, desk)
    bot = desk.parent / "keys" / "bot.pem"
    arl("keys", "new", bot, "--no-passphrase")
    held = f'{{public_key = "{public(arl, desk, "bot")}", not_before = 2020-01-01, not_after = 2120-01-01}}'
    words.write_text(
        words.read_text()
        + "\n".join(
            [
                "",
                "[[principals]]",
                'name = "bot"',
                'kind = "automatic"',
                'roles = ["approver"]',
                f"keys = [{held}]",
                'rules = "rules.txt"',
                "[[policies]]",
                'name = "small"',
                'approvers = ["bot"]',
                'max_window = "1h"',
            ]
        )
    )
    digests = set()
    for number, text in enumerate(("below 10 EUR", "below 20 EUR")):
        rules.write_text(text)
        path = desk.parent / f"out {number}.json"
        assert arl("trust", "new", words, "--output", path, "--db", desk).code == 0
        policies = arl("trust", "show", path, "--db", desk, "--json").json["policies"]
        digests.add(next(one["policy_sha256"] for one in policies if one["name"] == "small"))
    assert len(digests) == 2


def test_a_passphrase_is_asked_for_twice(arl: Arl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(key_files, "_asked_here", lambda: True)
    monkeypatch.setattr(key_files.getpass, "getpass", lambda prompt: said.pop(0))
    said[:] = ["open sesame", "open sesome"]
    assert arl("keys", "new", tmp_path / "ann.pem", "--json").error["code"] == "other_passphrase"
    assert not (tmp_path / "ann.pem").exists()
    said[:] = ["open sesame", "open sesame"]
    assert arl("keys", "new", tmp_path / "ann.pem", "--json").json["encrypted"] is True
    said[:] = ["open sesame"]
    assert arl("keys", "show", tmp_path / "ann.pem").code == 0
    said[:] = ["another"]
    assert arl("keys", "show", tmp_path / "ann.pem", "--json").error["code"] == "wrong_passphrase"


def test_what_cannot_be_put_in_its_place_is_not_put_in_use(arl: Arl, desk: Path) -> None:
    path = made(arl, desk, "bob", "dan")
    place = desk.parent / "missing" / "etc" / "trust.json"
    refused = arl("trust", "follow", path, "--yes", "--trust", place, "--db", desk, "--json")
    assert (refused.code, refused.error["code"]) == (1, "unwritable")
    assert on_record(desk) is None
    arl("trust", "follow", made(arl, desk, "bob", serial=2), "--yes", "--db", desk)
    assert not list(desk.parent.rglob("*.tmp"))


def finding(arl: Arl, desk: Path) -> tuple[str, str]:
    """The level and the words of what the doctor says of the trust file."""
    said = arl("doctor", "--db", desk, "--json").json["findings"]
    return next((one["level"], one["finding"]) for one in said if one["subject"] == "trust file")


def test_the_doctor_says_how_the_trust_file_stands(arl: Arl, desk: Path) -> None:
    first, second = made(arl, desk, "bob", "dan"), made(arl, desk, "bob", "dan", serial=2)
    installed = local_folder(desk) / TRUST_NAME
    assert finding(arl, desk)[0] == "note"
    arl("trust", "follow", first, "--yes", "--db", desk)
    assert finding(arl, desk) == ("ok", f"serial 1, {installed}")
    (installed.parent / "bob.pem").touch()
    assert finding(arl, desk)[0] == "warn"
    installed.write_bytes(second.read_bytes())
    assert finding(arl, desk)[0] == "bad"
    installed.write_bytes(b"{}")
    assert finding(arl, desk)[0] == "bad"
    installed.unlink()
    assert finding(arl, desk) == ("warn", "serial 1 is on record, and none is found")


def test_the_doctor_notices_private_keys_beside_the_store_under_any_name(arl: Arl, desk: Path) -> None:
    def found() -> list[str]:
        said = arl("doctor", "--db", desk, "--json").json["findings"]
        return [f"{one['level']}: {one['finding']}" for one in said if one["subject"] == "keys"]

    assert found() == []  # those of `desk` lie in a folder of their own
    (desk.parent / "bob.pub").write_bytes(b"-----BEGIN PUBLIC KEY-----")
    (desk.parent / "notes").write_bytes(b"x" * 100 + b"-----BEGIN PRIVATE KEY-----")
    assert found() == []
    plain, other = desk.parent / "bob.txt", local_folder(desk) / "old approver"
    other.parent.mkdir()
    plain.write_bytes(key(desk, "bob").read_bytes())
    other.write_bytes(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    (line,) = found()
    assert line == f"warn: private keys lie beside this database: {plain}, {other}"
    plain.unlink()
    other.unlink()
    plain.symlink_to(key(desk, "bob"))
    assert len(found()) == 1


@pytest.mark.parametrize(("now", "level"), [("2100-11-01", None), ("2100-12-03", "warn"), ("2101-01-02", "bad")])
def test_doctor_warns_before_too_few_officers_keys_are_left(
    arl: Arl, desk: Path, monkeypatch: pytest.MonkeyPatch, now: str, level: str | None
) -> None:
    assert arl("trust", "follow", made(arl, desk, "bob", "dan", until="2101-01-01"), "--yes", "--db", desk).code == 0
    now_ms = int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()) * 1_000
    monkeypatch.setattr("agent_run_ledger.ledger.authority.now_here", lambda time=None: Now(now_ms, now_ms))
    told = {one["subject"]: one["level"] for one in arl("doctor", "--db", desk, "--json").json["findings"]}
    assert (told["trust file"], told.get("officers")) == ("ok", level)
