"""The reference page names every command, option, exit code and JSON key that there is."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.cli.app import COMMANDS, GROUPS
from tests.cli.approval_desk import propose
from tests.cli.conftest import Arl
from tests.cli.effect_store import Effects

NAMES = [name for name, _, _ in COMMANDS]
NAMES += [f"{group} {name}" for group, _, commands in GROUPS for name, _, _ in commands]
WORDS = "|".join(group for group, _, _ in GROUPS)
LEFT_TO_OTHERS = {"--help", "--full", "--quick"}


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def test_every_command_is_in_the_table(page: str) -> None:
    listed = re.findall(rf"^\| `arl ((?:(?:{WORDS}) )?[a-z]+)", page, re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


def test_every_option_is_mentioned_and_none_that_is_not_there(page: str, arl: Arl) -> None:
    options = {"--version", "--debug", "--install-completion", "--show-completion", "--json"}
    for name in NAMES:
        if name != "bench":
            options |= set(re.findall(r"--[a-z-]+", arl(*name.split(), "--help").out))
    mentioned = set(re.findall(r"--[a-z][a-z-]*", page))
    assert mentioned - LEFT_TO_OTHERS <= options
    assert options - mentioned <= {"--help", "--version", "--show-completion"}


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in ("value", "policy", "numbers", "changes"):
                yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "list"),
        ("runs", "list", "--usage"),
        ("usage", "crashed"),
        ("usage", "--by", "model"),
        ("runs", "show", "crashed", "--payloads"),
        ("runs", "show", "dead", "--step", "judge"),
        ("runs", "explain", "changed"),
        ("runs", "quarantine", "failed", "--reason", "x"),
        ("runs", "fork", "done", "--from-step", "judge"),
        ("runs", "watch", "done"),
        ("init",),
        ("verify",),
        ("verify", "--since", "0:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("verify", "--inclusion", "3"),
        ("export", "--payloads", "--fingerprints"),
        ("backup", "copy.db"),
        ("upgrade",),
        ("doctor",),
        ("metrics",),
        ("version",),
        ("erase", "done", "--reason", "x", "--yes"),
        ("prune", "--completed-before", "0h", "--reason", "x", "--yes"),
    ],
)
def test_every_json_key_is_documented_in_the_section_of_its_command(
    page: str, arl: Arl, store: Path, arguments: tuple[str, ...]
) -> None:
    db = [] if arguments[0] == "version" else ["--db", str(store)]
    ended = arl(*arguments, *db, "--json")
    assert ended.code == 0
    has_lines = arguments[0] == "export" or "watch" in arguments
    keys = {key for line in (ended.lines if has_lines else [ended.json]) for key in _keys(line)}
    json_part = page.split("## JSON")[1]
    told = set(re.findall(r"[`\"]([a-z][a-z0-9_-]*)[`\"]", json_part))
    assert keys - told == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("effects", "list"),
        ("effects", "show", "refund:1"),
        ("effects", "observe", "refund:1", "--found", "unknown"),
        ("effects", "doubt", "claimed"),
        ("metrics",),
    ],
)
def test_every_json_key_of_effects_is_documented(page: str, arl: Arl, db: Path, arguments: tuple[str, ...]) -> None:
    effects = Effects(db)
    effects.doubted("refund:1")
    effects.claimed("claimed")
    drain = ("observe", "refund:1", "--drain", "path-dead", "--covers", "worker", "--as", "cat")
    assert arl("effects", *drain, "--db", db).code == 0
    assert arl("effects", "observe", "refund:1", "--found", "nothing", "--as", "cat", "--db", db).code == 0
    ended = arl(*arguments, "--db", db, "--json")
    assert ended.code == 0
    told = set(re.findall(r"[`\"]([a-z][a-z0-9_-]*)[`\"]", page.split("## JSON")[1]))
    assert set(_keys(ended.json)) - told == set()


@pytest.mark.parametrize(
    ("heading", "arguments"),
    [
        ("init", ("init", "--local", "--name", "ann")),
        ("approvals", ("approvals", "list")),
        ("approvals", ("approvals", "show", "refund:17")),
        ("approvals", ("approvals", "grant", "refund:17", "--yes")),
        ("approvals", ("approvals", "revoke", "refund:17", "--yes")),
        ("trust", ("trust", "show")),
        ("trust", ("trust", "follow", "trust.json")),
        ("trust", ("trust", "sign", "unsigned.json", "--key", "approver.pem")),
        ("principals", ("principals", "list")),
        ("principals", ("principals", "show", "ann")),
        ("keys", ("keys", "new", "key.pem", "--no-passphrase")),
    ],
)
def test_every_json_key_of_approvals_is_documented(
    page: str, arl: Arl, db: Path, heading: str, arguments: tuple[str, ...]
) -> None:
    arl("init", "--local", "--name", "ann", "--db", db)
    propose(db)
    folder = Path(f"{db}.local")
    for name in ("trust.json", "approver.pem"):
        shutil.copy(folder / name, name)
    Path("unsigned.json").write_bytes(b64decode(json.loads(Path("trust.json").read_bytes())["payload"]))
    place = [] if arguments[0] == "keys" or "sign" in arguments else ["--db", str(db)]
    ended = arl(*arguments, *place, "--json")
    assert ended.code == 0, ended.err
    section = page.split(f"### {heading}\n")[1].split("\n### ", maxsplit=1)[0]
    assert set(_keys(ended.json)) - set(re.findall(r"`([a-z0-9_]+)`", section)) == set()


def test_every_json_key_of_the_breaker_is_documented(page: str, arl: Arl, tmp_path: Path) -> None:
    corpus = tmp_path / "runs.jsonl"
    corpus.write_text('{"source":"a","trajectory_id":"b","steps":[],"label":"healthy","stop":null}\n', encoding="utf-8")
    said = arl("breaker", "eval", "--corpus", corpus, "--json").json
    keys = set(_keys({key: value for key, value in said.items() if key != "by_source"}))
    section = page.split("### breaker eval")[1].split("###", maxsplit=1)[0]
    assert keys - set(re.findall(r"`([a-z0-9_]+)`", section)) == set()


def test_the_keys_of_exported_records_are_documented(page: str, arl: Arl, store: Path) -> None:
    events = arl("export", "--payloads", "--fingerprints", "--db", store).lines[:-1]
    keys = {key for event in events for change in event["data"]["changes"] for key in change.get("record", {})}
    section = page.split("### export")[1].split("###", maxsplit=1)[0]
    assert keys - set(re.findall(r"`([a-z0-9_]+)`", section)) == set()
