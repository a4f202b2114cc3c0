"""The policy file of the MCP proxy: what it says, and what is said of a bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_run_ledger import Misuse
from agent_run_ledger.adapters.mcp import Policy, ServerTool, read_policy
from agent_run_ledger.adapters.mcp.policy import step_name
from agent_run_ledger.adapters.rules import ToolRules

TOML = """
[tools."*"]
timeout_s = 60

[tools.look]
safe = true
volatile = ["eta", "meta.took"]

[tools.wait]
poll = true
trust_hints = true

[tools.drop]
deny = "not in this shop"
"""


def _read(folder: Path, text: str, name: str = "policy.toml") -> Policy:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_policy(path)


def test_a_file_says_what_holds_for_each_tool(tmp_path: Path) -> None:
    policy = _read(tmp_path, TOML)
    assert policy.of("anything") == ServerTool(timeout_s=60)
    assert policy.of("look").rules == ToolRules(safe=True, volatile=("eta", "meta.took"))
    assert policy.of("look").timeout_s is None
    assert policy.of("wait") == ServerTool(rules=ToolRules(poll=True), trust_hints=True)
    assert policy.of("drop").rules.deny == "not in this shop"


def test_json_says_the_same(tmp_path: Path) -> None:
    said = {"tools": {"*": {"timeout_s": 60}, "drop": {"deny": True}}}
    policy = _read(tmp_path, json.dumps(said), "policy.json")
    assert policy.of("x").timeout_s == 60
    assert policy.of("drop").rules.deny
    assert _read(tmp_path, "").of("x") == ServerTool()


def test_rules_are_by_the_names_of_steps_and_safe_ones_keep_what_is_denied(tmp_path: Path) -> None:
    policy = _read(tmp_path, TOML + '[tools."run.all"]\nsafe = true\n')
    assert policy.rules()["mcp:run.all"].safe
    assert not policy.rules()["drop"].safe
    safe = policy.rules(safe=True)
    assert all(rules.safe for rules in safe.values())
    assert safe["drop"].deny == "not in this shop"
    assert safe["look"].volatile == ("eta", "meta.took")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tool = 3", "unknown key 'tool'"),
        ("tools = 3", "tools must be a table"),
        ("[tools]\nx = 3", "tools.x must be a table"),
        ("[tools.x]\nsave = true", "tools.x has the unknown key 'save'"),
        ('[tools.x]\nsafe = "yes"', "tools.x.safe must be true or false"),
        ("[tools.x]\npoll = 1", "tools.x.poll must be true or false"),
        ("[tools.x]\ntrust_hints = 1", "tools.x.trust_hints must be true or false"),
        ("[tools.x]\ntimeout_s = 0", "tools.x.timeout_s must be a number"),
        ("[tools.x]\ntimeout_s = true", "tools.x.timeout_s must be a number"),
        ('[tools.x]\nvolatile = "eta"', "tools.x.volatile must be a list"),
        ("[tools.x]\nvolatile = [1]", "tools.x.volatile must be a list"),
        ("[tools.x]\ndeny = 3", "tools.x: deny"),
        ('[tools."a\\nb"]\nsafe = true', "a tool's name must be printable"),
        ("[tools", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_by_its_name_and_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Misuse) as refused:
        _read(tmp_path, text)
    assert refused.value.code == "bad_policy_file"
    assert str(tmp_path / "policy.toml") in refused.value.message
    assert words in refused.value.message


@pytest.mark.parametrize("text", ["[]", "{", '{"tools": []}', "[" * 100_000])
def test_bad_json_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misuse, match=r"policy\.json"):
        _read(tmp_path, text, "policy.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="cannot be read"):
        read_policy(tmp_path / "none.toml")


def test_names_of_steps_are_those_of_tools_and_never_two_alike() -> None:
    assert step_name("look") == "look"
    names = ["run.x", "mcp:run.x", "mcp:mcp:run.x", "x", "mcp:x"]
    assert len({step_name(name) for name in names}) == len(names)
    assert not any(step_name(name).startswith("run.") for name in names)
    for bad in ("", "a\nb", "x" * 201):
        with pytest.raises(Misuse):
            step_name(bad)
