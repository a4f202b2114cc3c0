"""The guide's policy files are read, its client's configuration starts the proxy, and its program serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.adapters.mcp import read_policy
from tests.adapters.guides import pieces
from tests.adapters.mcp.sessions import PATIENCE_S
from tests.docs.pages import ROOT, blocks

GUIDE = (ROOT / "docs" / "guide" / "adapter_mcp.md").read_text(encoding="utf-8")
POLICY, EFFECTS = (block.body for block in blocks(GUIDE) if block.language == "toml")
(CLIENT,) = (json.loads(block.body) for block in blocks(GUIDE) if block.language == "json")
(PROGRAM,) = pieces("adapter_mcp.md")
SERVER = Path(__file__).with_name("plain_server.py")
BEFORE = """
import sys
from agent_run_ledger.adapters.gate import Answer, Permission


def may_be_called(request):
    return Answer(permission=Permission.ALLOWED if request.tool == "echo" else Permission.DENIED)


def print_on_stderr(words):
    print(words, file=sys.stderr)

"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the guide takes for granted: a server of that name, and the policy file."""
    (tmp_path / "git.toml").write_text(POLICY, encoding="utf-8")
    server = tmp_path / "bin" / "mcp-server-git"
    server.parent.mkdir()
    server.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{SERVER}'\n")
    server.chmod(0o755)
    return tmp_path


def _told(folder: Path, command: list[str], *tools: str) -> list[dict[str, Any]]:
    """What a client is told that calls each of these tools and then ends."""
    calls = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
        for number, tool in enumerate(tools)
    ]
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "SERVER_LOG": str(folder / "log"), "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = []
        for call in calls:
            process.stdin.write(json.dumps(call) + "\n")
            process.stdin.flush()
            said.append(json.loads(process.stdout.readline())["result"])
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    return said


def test_the_policy_files_say_what_the_guide_says(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY, encoding="utf-8")
    policy = read_policy(path)
    assert (policy.of("any").timeout_s, policy.of("any").trust_hints) == (120, True)
    assert policy.of("git_log").rules.safe
    assert (policy.of("build_status").rules.poll, policy.of("build_status").rules.volatile) == (True, ("eta",))
    assert policy.of("git_reset").rules.deny == "not without me"
    path.write_text(EFFECTS.replace('approval = "finance" }', 'approval = "finance", wait_s = 20 }'), encoding="utf-8")
    policy = read_policy(path)
    effect = policy.effects["refund"]
    assert (effect.approval, effect.wait_s) == ("finance", 20)
    assert getattr(effect, "audience", "") == "mcp:payments/refund"
    assert (policy.parties.requester, policy.parties.executor) == ("agent", "worker")


def test_the_configuration_of_a_client_starts_the_proxy(folder: Path) -> None:
    asked = CLIENT["mcpServers"]["git"]
    said = _told(folder, [asked["command"], *asked["args"]], "echo", "git_reset")
    assert [one.get("isError") for one in said] == [False, True]
    assert "not without me" in said[1]["content"][0]["text"]


def test_the_program_serves_with_its_gate(folder: Path) -> None:
    (folder / "program.py").write_text(BEFORE + PROGRAM, encoding="utf-8")
    said = _told(folder, [sys.executable, "program.py"], "echo", "read_stock")
    assert [one.get("isError") for one in said] == [False, True]
    assert (folder / "log").read_text().count("call ") == 1
