"""Effects among the tools that a recorder records: what waits, what is called, and what is taken as evidence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger import (
    ApprovalPending,
    EffectInDoubt,
    EffectPending,
    Misuse,
    Opaque,
    Pending,
    Refused,
    RunCancelled,
    RunLedger,
    RunState,
    Unavailable,
    Vetoed,
    http,
)
from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.gate import Answer, Permission
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.adapters.tool_target import CalledTool, NotDone
from agent_run_ledger.effects import ActionState, Call, Intent, Request, Sending, request_bytes
from agent_run_ledger.effects import NotSent as NothingSent
from agent_run_ledger.effects.answers import MAX_ANSWER_BYTES
from agent_run_ledger.kernel.effects.commands import Actor
from agent_run_ledger.kernel.effects.display import display_sha256
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ledger.authority import open_effects
from agent_run_ledger.runs.effect_steps import Effect
from agent_run_ledger.store import open_sqlite
from agent_run_ledger.testing import check_ledger
from agent_run_ledger.testing.people import People

KEY = "refund:17"
EFFECT = ToolEffect(key="refund:{order}", approval="finance")
ASKED = {"order": 17, "cents": 3_000}


class Desk:
    """A store with people, and a tool that notes what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.people = People(folder / "ledger.db")
        self.got: list[dict[str, Any]] = []
        self.answer: Any = "done"

    def ledger(self) -> RunLedger:
        return RunLedger("ticket", self.people.db_path, effects=self.people.settings)

    def act(self, arguments: dict[str, Any]) -> Any:
        self.got.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def call(self, recorder: Recorder, arguments: Any = None, **more: Any) -> Any:
        asked = ASKED if arguments is None else arguments
        return recorder.tool(
            "refund", asked, lambda: self.act({**asked}), **{"call_id": "c1", "make_with": self.act, **more}
        )

    def live_with(self, effect: ToolEffect, word: type[Pending] | None = None) -> Any:
        with self.ledger() as ledger:
            try:
                with ledger.run():
                    return self.call(Recorder(effects={"refund": effect}))
            except Pending as error:
                if word is None:
                    raise
                return isinstance(error, word)

    def live(self, arguments: Any = None, **more: Any) -> Any:
        with self.ledger() as ledger, ledger.run():
            return self.call(Recorder(effects={"refund": EFFECT}), arguments, **more)

    @property
    def state(self) -> ActionState:
        return self.people.members(KEY)[-1].state

    @property
    def run_state(self) -> RunState | None:
        with self.ledger() as ledger:
            return ledger.bind("ticket").state

    def edit(self, **arguments: Any) -> None:
        """Let the approver change what is asked for."""
        with open_effects(self.people.db_path, trust_path=self.people.trust) as effects:
            view = effects.inspect(KEY)[-1]
            terms, less = effects._action(view.action_id).terms, request_bytes(Call.of("refund", arguments))
            intent = Intent(
                request=less,
                executor=terms.executor,
                audience=terms.audience,
                target_class=terms.target_class,
                not_before_ms=terms.not_before_ms,
                dispatch_before_ms=terms.dispatch_before_ms,
                policy_sha256=terms.policy_sha256,
                display_sha256=display_sha256(less),
            )
            effects.edit(Actor("ada", frozenset({Role.APPROVER})), view.action_id, intent)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield Desk(tmp_path)
    check_ledger(tmp_path / "ledger.db")


def test_what_waits_and_is_swallowed_asks_no_model_and_completes_no_run(desk: Desk) -> None:
    asked: list[ApprovalPending] = []

    def agent() -> None:
        with desk.ledger() as ledger, ledger.run():
            with pytest.raises(ApprovalPending):
                desk.call(Recorder(effects={"refund": EFFECT}))
            with pytest.raises(ApprovalPending) as caught:
                Recorder().model("model", {"messages": []}, lambda: "never")
            asked.append(caught.value)

    with pytest.raises(ApprovalPending) as left:
        agent()
    assert left.value.action_id == asked[0].action_id == desk.people.members(KEY)[-1].action_id.hex()
    assert (desk.run_state, desk.got) == (RunState.SUSPENDED, [])


def test_in_one_attempt_it_is_called_once_it_is_granted_whatever_was_done_in_between(desk: Desk) -> None:
    made = ["a page", "nothing there", "the last one"]
    with desk.ledger() as ledger, ledger.run():
        recorder = Recorder(effects={"refund": EFFECT})
        for number in range(3):
            with pytest.raises(ApprovalPending):
                desk.call(recorder)
            assert recorder.tool("look", {"at": number}, lambda: made.pop(), call_id=f"look-{number}")
        desk.people.grant(KEY)
        assert desk.call(recorder) == "done"
    assert (desk.got, desk.run_state) == ([ASKED], RunState.COMPLETED)
    store = open_sqlite(desk.people.db_path, create=False)
    try:
        row = store.reader().find_run("ticket")
        assert row is not None
        told = list(store.reader().records(row.row_id, kinds=(RecordKind.ERROR,)))
        assert len(told) == 1, "a call that is told again that it waits is on record once more"
    finally:
        store.close()


def test_what_is_called_is_what_was_approved_also_where_people_edited_it(desk: Desk) -> None:
    with pytest.raises(ApprovalPending) as first:
        desk.live()
    assert "3000" in first.value.display
    desk.edit(order=17, cents=1)
    with pytest.raises(ApprovalPending) as waits:
        desk.live()
    assert waits.value.display == "", "people would be shown what is not sent"
    desk.people.grant(KEY, "dora")
    assert desk.live() == "done"
    assert desk.got == [{"order": 17, "cents": 1}]


def test_a_call_that_takes_no_arguments_is_not_made_with_other_ones(desk: Desk) -> None:
    with pytest.raises(ApprovalPending):
        desk.live(make_with=None)
    desk.edit(order=17, cents=1)
    desk.people.grant(KEY, "dora")
    for _ in range(2):
        with pytest.raises(EffectPending) as caught:
            desk.live(make_with=None)
        assert (caught.value.code, desk.state) == ("other_arguments", ActionState.AVAILABLE)
    assert (desk.got, desk.run_state) == ([], RunState.SUSPENDED)
    assert desk.live() == "done", "a program that can make the call goes on with it"
    assert desk.got == [{"order": 17, "cents": 1}]


def test_a_call_that_takes_no_arguments_is_not_made_with_others_than_its_own(desk: Desk) -> None:
    with pytest.raises(ApprovalPending):
        desk.live(make_with=None)
    desk.people.grant(KEY)
    assert desk.live(make_with=None) == "done"
    assert desk.got == [ASKED]


def _never_run() -> Any:
    yield "it has done nothing"


async def _never_awaited() -> None:
    raise AssertionError


@pytest.mark.parametrize("answer", [_never_run, _never_awaited])
def test_what_has_not_run_is_no_evidence_that_it_did(desk: Desk, answer: Callable[[], Any]) -> None:
    with pytest.raises(ApprovalPending):
        desk.live()
    desk.people.grant(KEY)
    made = answer()
    desk.answer = made
    with pytest.raises(EffectInDoubt):
        desk.live()
    made.close()
    assert desk.state is ActionState.UNRESOLVED


@pytest.mark.parametrize("answer", [ValueError("reset"), NotDone({"isError": True})])
def test_an_error_and_an_answer_that_says_nothing_are_doubts(desk: Desk, answer: Exception) -> None:
    with pytest.raises(ApprovalPending):
        desk.live()
    desk.people.grant(KEY)
    desk.answer = answer
    for _ in range(2):
        with pytest.raises(EffectInDoubt):
            desk.live()
    assert (desk.got, desk.state, desk.run_state) == ([ASKED], ActionState.UNRESOLVED, RunState.SUSPENDED)
    desk.people.saw_it(KEY)
    assert "evidence" in desk.live()
    assert desk.got == [ASKED]


@pytest.mark.parametrize("answer", ["x" * (MAX_ANSWER_BYTES + 1), {1, 2}, float("nan")], ids=["long", "set", "nan"])
def test_an_answer_that_cannot_be_kept_is_evidence_all_the_same(desk: Desk, answer: Any) -> None:
    with pytest.raises(ApprovalPending):
        desk.live()
    desk.people.grant(KEY)
    desk.answer = answer
    for _ in range(2):
        assert "was carried out" in desk.live()
    assert (desk.got, desk.state) == ([ASKED], ActionState.SUCCEEDED)


def test_a_function_with_an_answer_that_is_too_long_to_be_kept_has_happened(desk: Desk) -> None:
    def refund(order: int, cents: int) -> str:
        desk.got.append({"order": order, "cents": cents})
        return "x" * (MAX_ANSWER_BYTES + 1)

    effect = Effect(refund, key="refund:{order}", target=Opaque(), approval="finance")

    def live() -> Any:
        with desk.ledger() as ledger, ledger.run():
            return desk.call(Recorder(effects={"refund": effect}))

    with pytest.raises(ApprovalPending):
        live()
    desk.people.grant(KEY)
    for _ in range(2):
        assert "was carried out" in live()
    assert (desk.got, desk.state) == ([ASKED], ActionState.SUCCEEDED)


@pytest.mark.parametrize("value", [1.0, True, None, "", [], {}, "\ud800", "x" * 5_000])
def test_a_key_is_made_of_texts_and_whole_numbers(desk: Desk, value: Any) -> None:
    with pytest.raises(Vetoed):
        desk.live({"order": value, "cents": 1})
    assert desk.got == []


def _of_attribute(**arguments: Any) -> str:
    return f"refund:{arguments['order'].number}"


def _of_division(**arguments: Any) -> str:
    return f"refund:{arguments['order'] // 0}"


def _of_what_is_missing(**arguments: Any) -> str:
    return f"refund:{arguments['invoice']}"


def _of_nothing(**arguments: Any) -> str:
    raise RuntimeError("no such order" + "!" * 100_000)


def _of_no_text(**arguments: Any) -> str:
    return arguments["order"]  # type: ignore[no-any-return]


def _of_cents(*, cents: int) -> str:
    return f"refund:{cents}"


KEYS = [_of_attribute, _of_division, _of_what_is_missing, _of_nothing, _of_no_text, _of_cents]


@pytest.mark.parametrize("key", KEYS)
def test_whatever_the_function_of_the_key_raises_is_an_error_of_the_call(desk: Desk, key: Callable[..., str]) -> None:
    with desk.ledger() as ledger, ledger.run():
        recorder = Recorder(effects={"refund": replace(EFFECT, key=key)})
        assert recorder.ask("refund", ASKED, call_id="c1").permission is Permission.ALLOWED  # the call says why not
        with pytest.raises(Vetoed, match="'refund' names no effect") as caught:
            desk.call(recorder)
        assert recorder.model("model", {"messages": []}, lambda: "told so") == "told so"
    assert caught.value.code == "bad_key"
    assert len(str(caught.value)) < 1_000
    assert (desk.got, desk.run_state) == ([], RunState.COMPLETED)
    with open_effects(desk.people.db_path, trust_path=desk.people.trust) as effects:
        assert effects.inbox() == []


def test_what_the_ledger_says_to_the_function_of_the_key_is_no_veto(desk: Desk) -> None:
    def key(**arguments: Any) -> str:
        raise Unavailable("not now")

    with pytest.raises(Unavailable):
        desk.live_with(replace(EFFECT, key=key))
    assert desk.live_with(EFFECT, word=ApprovalPending)


@pytest.mark.parametrize("raised", [KeyError("order"), ZeroDivisionError("nought"), AttributeError("x")])
def test_whatever_the_function_that_builds_raises_is_an_error_of_the_call(desk: Desk, raised: Exception) -> None:
    def build(order: int, cents: int) -> Request:
        raise raised

    effect = Effect(build, key="refund:{order}", target=http("http://127.0.0.1:9"), approval="finance")
    with desk.ledger() as ledger, ledger.run():
        recorder = Recorder(effects={"refund": effect})
        assert recorder.ask("refund", ASKED, call_id="c1").permission is Permission.ALLOWED
        for arguments in (ASKED, {"order": 17}, {**ASKED, "more": 1}):
            with pytest.raises(Vetoed, match="cannot be asked for") as caught:
                desk.call(recorder, arguments)
            assert caught.value.code == "bad_call"
    assert (desk.got, desk.run_state) == ([], RunState.COMPLETED)
    assert desk.people.members(KEY) == []


def test_who_asks_about_a_call_is_told_what_it_waits_for(desk: Desk) -> None:
    answers: list[Answer] = []

    def agent() -> None:
        with desk.ledger() as ledger, ledger.run():
            recorder = Recorder(effects={"refund": EFFECT})
            answers.append(recorder.ask("refund", ASKED, call_id="c1"))
            recorder.waits_elsewhere("refund", ASKED, "c1", answers[-1])

    kept = desk.people.trust.read_bytes()
    desk.people.trust.unlink()
    with pytest.raises(Pending) as left:
        agent()
    desk.people.trust.write_bytes(kept)
    assert (answers[0].permission, answers[0].state) == (Permission.PENDING, "held_up")
    assert str(desk.people.trust) in answers[0].reason
    assert "not for approval" in left.value.message
    assert left.value.hint == answers[0].reason
    with pytest.raises(Pending) as left:
        agent()
    assert (answers[1].permission, answers[1].state) == (Permission.PENDING, "pending")
    assert "waits for approval" in left.value.message


def test_a_no_of_people_is_a_veto_with_their_code_and_stands(desk: Desk) -> None:
    with pytest.raises(ApprovalPending):
        desk.live()
    desk.people.reject(KEY)
    for _ in range(2):
        with pytest.raises(Vetoed) as caught:
            desk.live()
        assert caught.value.code == "rejected"
    assert desk.got == []


@pytest.mark.parametrize("first", ["model", "amodel", "stream", "astream", "tool", "atool", "ask", "effect"])
def test_an_unknown_policy_ends_the_run_before_anything_is_made(desk: Desk, first: str) -> None:
    made: list[str] = []
    refund = {"refund": replace(EFFECT, approval="nobody")}

    async def make() -> str:
        made.append("it")
        return "it"

    async def chunks() -> AsyncIterator[str]:
        yield await make()

    async def taken(recorder: Recorder) -> None:
        async for _ in recorder.astream("model", {}, chunks):
            pass

    def act() -> str:
        made.append("it")
        return "it"

    ways: dict[str, Callable[[Recorder], object]] = {
        "model": lambda one: one.model("model", {}, act),
        "amodel": lambda one: asyncio.run(one.amodel("model", {}, make)),
        "stream": lambda one: [*one.stream("model", {}, lambda: iter([act()]))],
        "astream": lambda one: asyncio.run(taken(one)),
        "tool": lambda one: one.tool("look", {}, act, call_id="l"),
        "atool": lambda one: asyncio.run(one.atool("look", {}, make, call_id="l")),
        "ask": lambda one: one.ask("look", {}),
        "effect": lambda one: desk.call(one),
    }
    recorder = Recorder(effects=refund)

    def agent() -> None:
        with desk.ledger() as ledger, ledger.run():
            with pytest.raises(Refused) as caught:
                ways[first](recorder)
            assert not isinstance(caught.value, Vetoed)
            assert caught.value.code == "no_policy"
            with pytest.raises(Refused):  # who swallows it gets no further
                Recorder().model("model", {}, act)

    for _ in range(2):
        with pytest.raises(Refused, match="'nobody'"):
            agent()
    assert (made, desk.got, desk.people.members(KEY), desk.run_state) == ([], [], [], RunState.FAILED)
    with pytest.raises(ApprovalPending):  # mended, the same run goes on
        desk.live()


def test_tools_that_name_an_unknown_policy_are_refused_before_a_program_begins(desk: Desk) -> None:
    with desk.ledger() as ledger:
        ledger.check_effects({"refund": EFFECT})
        with pytest.raises(Refused) as caught:
            ledger.check_effects({"refund": EFFECT, "pay": replace(EFFECT, approval="nobody")})
        assert caught.value.code == "no_policy"


def test_a_run_that_was_stopped_is_no_veto(desk: Desk) -> None:
    def agent() -> None:
        with desk.ledger() as ledger, ledger.run():
            desk.people.grant(KEY)
            ledger.bind("ticket").cancel("enough")
            with pytest.raises(RunCancelled):
                desk.call(Recorder(effects={"refund": EFFECT}))

    with pytest.raises(ApprovalPending):
        desk.live()
    with pytest.raises(RunCancelled):
        agent()
    assert (desk.got, desk.state) == ([], ActionState.AVAILABLE)


def test_to_ask_is_to_propose_and_nothing_more(desk: Desk) -> None:
    with desk.ledger() as ledger, ledger.run():
        recorder = Recorder(effects={"refund": EFFECT})
        first = recorder.ask("refund", ASKED, call_id="c1")
        again = asyncio.run(recorder.aask("refund", ASKED, call_id="c1"))
        assert first == again
        assert (first.permission, first.approval_id) == (
            Permission.PENDING,
            desk.people.members(KEY)[-1].action_id.hex(),
        )
        desk.people.grant(KEY)
        assert recorder.ask("refund", ASKED, call_id="c1").permission is Permission.ALLOWED
        assert desk.state is ActionState.AVAILABLE
        assert recorder.ask("refund", {**ASKED, "cents": 1}).permission is Permission.ALLOWED  # the call says why not
    with desk.ledger() as ledger, ledger.run():  # it is completed, and nothing new is asked for
        assert Recorder(effects={"refund": EFFECT}).ask("refund", {**ASKED, "order": 18}) == Answer(
            permission=Permission.ALLOWED
        )
    assert desk.people.members("refund:18") == []
    assert desk.got == []


def test_a_gate_and_rules_come_first(desk: Desk) -> None:
    with pytest.raises(Pending, match="g1"), desk.ledger() as ledger, ledger.run():
        desk.call(
            Recorder(effects={"refund": EFFECT}, gate=lambda _: Answer(permission=Permission.PENDING, approval_id="g1"))
        )
    with pytest.raises(Vetoed), desk.ledger() as ledger, ledger.run():
        desk.call(Recorder(effects={"refund": EFFECT}, tools={"refund": {"deny": "closed"}}))
    assert desk.people.members(KEY) == []


def test_a_target_sends_nothing_after_its_permit_and_no_other_request(desk: Desk) -> None:
    target = CalledTool("refund", desk.act)
    call: Any = Call.of("refund", ASKED)
    late: Any = Sending(request=call, permit=None, idempotency_key="", in_time=lambda: False)  # type: ignore[arg-type]
    assert target.send(late) == NothingSent(reason="permit_expired")
    for other in (Call.of("other", ASKED), Request.json("POST", "/", {})):
        with pytest.raises(Misuse):
            target.check(other)
    assert desk.got == []
