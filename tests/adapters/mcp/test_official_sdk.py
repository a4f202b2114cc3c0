"""The official SDK at both ends, in both eras of the protocol, and real servers behind the proxy."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

from agent_run_ledger.testing.people import People
from tests.adapters.mcp.sessions import HERE, Place, meta_of
from tests.adapters.offline import OFFLINE

EVERYTHING = [*OFFLINE, str(HERE / "sdk_server.py")]
OLD, NEW = "2025-11-25", "2026-07-28"
ERAS = pytest.mark.parametrize("mode", ["legacy", NEW])
Use = Callable[[Client], Awaitable[Any]]


def _use(place: Place, use: Use, *options: str, server: Sequence[str] = EVERYTHING, **settings: Any) -> Any:
    command = place.command(*options, server=server)
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=place.environment())

    async def session() -> Any:
        async with asyncio.timeout(60):
            async with Client(parameters, **settings) as client:
                return await use(client)

    return asyncio.run(session())


def _text(result: types.CallToolResult) -> str:
    return "\n".join(getattr(part, "text", "") for part in result.content)


@pytest.mark.parametrize(("mode", "version"), [("legacy", OLD), (NEW, NEW), ("auto", NEW)])
def test_both_eras_are_negotiated_through_the_proxy_and_results_are_restored(
    place: Place, mode: str, version: str
) -> None:
    seen: list[Any] = []

    async def use(client: Client) -> str:
        assert client.protocol_version == version
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"report", "book"}
        return _text(await client.call_tool("report", {"steps": 2}))

    for _ in range(2):
        seen.append(_use(place, use, mode=mode))
    assert seen == ["2 steps", "2 steps"]
    assert place.calls("report") == 1


@ERAS
def test_progress_and_logging_reach_the_client(place: Place, mode: str) -> None:
    progress: list[float] = []
    said: list[Any] = []

    async def heard(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        said.append(params.data)

    async def use(client: Client) -> str:
        return _text(await client.call_tool("report", {"steps": 3}, progress_callback=heard))

    assert _use(place, use, mode=mode, logging_callback=logged, log_level="info") == "3 steps"
    assert progress == [1, 2, 3]
    assert said == ["half way"]


def test_sampling_and_elicitation_go_to_the_client_and_back(place: Place) -> None:
    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="forty-two")
        return types.CreateMessageResult(role="assistant", content=content, model="fake")

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"size": 7})

    async def use(client: Client) -> tuple[str, str]:
        model = await client.call_tool("ask_model", {"question": "?"})
        return _text(model), _text(await client.call_tool("ask_person"))

    for _ in range(2):
        said = _use(place, use, mode="legacy", sampling_callback=sample, elicitation_callback=elicit)
        assert said == ("the model says forty-two", "accept size=7")
    assert place.calls("ask_model") == place.calls("ask_person") == 1


def test_a_call_in_two_parts_is_recorded_part_by_part(place: Place) -> None:
    sizes = iter((7, 7, 8))

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"size": next(sizes)})

    async def use(client: Client) -> str:
        return _text(await client.call_tool("book", {"room": "blue"}))

    said = [_use(place, use, mode=NEW, elicitation_callback=elicit) for _ in range(2)]
    assert said == ["blue {'size': 7}"] * 2
    assert place.lines("call book") == ["call book first", "call book again"]


def test_a_subscription_of_the_newer_protocol_passes(place: Place) -> None:
    async def use(client: Client) -> str:
        async with client.listen(tools_list_changed=True) as events:
            await client.call_tool("touch")
            async for event in events:
                return type(event).__name__
        return "nothing"

    assert _use(place, use, mode=NEW) == "ToolsListChanged"


@ERAS
def test_a_cancellation_reaches_the_server(place: Place, mode: str) -> None:
    async def use(client: Client) -> None:
        await client.list_tools()  # now the server is there
        with pytest.raises(MCPError, match=r"(?i)time"):
            await client.call_tool("wait", read_timeout_seconds=1)

    _use(place, use, mode=mode)
    place.until("cancelled wait")
    assert place.calls("wait") == 1


@ERAS
def test_a_stop_reaches_the_model_as_a_result(place: Place, mode: str) -> None:
    policy = place.policy('[tools.touch]\ndeny = "not today"\n')

    async def use(client: Client) -> types.CallToolResult:
        return await client.call_tool("touch")

    said = _use(place, use, "--policy", policy, mode=mode)
    assert said.is_error
    assert "not today" in _text(said)
    assert meta_of({"_meta": said.meta})["state"] == "denied"
    assert place.calls() == 0


# -- real servers --------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    git = ["git", "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    subprocess.run([*git, "config", "user.name", "a"], check=True)
    subprocess.run([*git, "config", "user.email", "a@example.org"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    (path / "notes.txt").write_text("one\n", encoding="utf-8")
    return path


def _commits(repository: Path) -> int:
    done = subprocess.run(
        ["git", "-C", str(repository), "rev-list", "--count", "HEAD"], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_commits_of_a_real_git_server_are_made_once(place: Place, repository: Path) -> None:
    server = [*OFFLINE, "-m", "mcp_server_git", "--repository", str(repository)]
    where = {"repo_path": str(repository)}

    async def use(client: Client) -> list[str]:
        return [
            _text(await client.call_tool(tool, where | more))
            for tool, more in (
                ("git_status", {}),
                ("git_add", {"files": ["notes.txt"]}),
                ("git_commit", {"message": "second"}),
                ("git_log", {"max_count": 5}),
            )
        ]

    first = _use(place, use, server=server)
    assert _commits(repository) == 2
    assert "second" in first[3]
    assert _use(place, use, server=server) == first
    assert _commits(repository) == 2


def test_hints_of_a_real_server_are_trusted_only_by_policy(place: Place, repository: Path) -> None:
    """git_log has readOnlyHint there; the commit has none."""
    server = [*OFFLINE, "-m", "mcp_server_git", "--repository", str(repository)]

    async def hints(client: Client) -> dict[str, bool | None]:
        tools = (await client.list_tools()).tools
        return {tool.name: tool.annotations.read_only_hint if tool.annotations else None for tool in tools}

    said = _use(place, hints, server=server)
    assert said["git_log"] is True
    assert not said["git_commit"]


def test_the_time_of_a_real_server_stands_still_in_a_restart(place: Place) -> None:
    server = [*OFFLINE, "-m", "mcp_server_time", "--local-timezone", "Europe/Berlin"]

    async def use(client: Client) -> list[str]:
        asked: list[tuple[str, dict[str, str]]] = [
            ("get_current_time", {"timezone": "Asia/Tokyo"}),
            ("convert_time", {"source_timezone": "UTC", "time": "10:00", "target_timezone": "Asia/Tokyo"}),
            ("get_current_time", {"timezone": "Nowhere/Land"}),
        ]
        return [_text(await client.call_tool(tool, given)) for tool, given in asked]

    first = _use(place, use, server=server)
    assert "19:00" in first[1]
    assert _use(place, use, server=server) == first


@ERAS
def test_a_tool_that_is_an_effect_waits_for_people_and_is_called_once(place: Place, mode: str) -> None:
    people = People(place.db)
    policy = place.policy('[tools.report]\neffect = { key = "report:{steps}", approval = "finance" }\n')
    options = ("--policy", policy, "--trust", str(people.trust))

    async def use(client: Client) -> list[tuple[bool, str]]:
        results = [await client.call_tool("report", {"steps": 2}) for _ in range(2)]
        return [(bool(result.is_error), _text(result)) for result in results]

    for is_error, text in _use(place, use, *options, mode=mode):
        assert is_error
        assert people.members("report:2")[-1].action_id.hex() in text
    assert place.calls("report") == 0
    people.grant("report:2")
    for _ in range(2):
        assert _use(place, use, *options, mode=mode) == [(False, "2 steps")] * 2
    assert place.calls("report") == 1
