"""An effect within what another effect sends: refused by a clear error, and nothing of it is asked for or sent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from agent_run_ledger import ApprovalPending, EffectInDoubt, Misuse, Opaque, RunLedger
from agent_run_ledger.adapters.effects import ToolEffect
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.effects import ActionState
from tests.contract.effect_run_kit import Desk, desk

A = ActionState


def alone(ledger: RunLedger, inner: Callable[[], Any]) -> Any:
    return inner()


def in_a_branch(ledger: RunLedger, inner: Callable[[], Any]) -> Any:
    from agent_run_ledger.runs.branches import in_threads
    from agent_run_ledger.runs.current import CURRENT

    place: Any = CURRENT.get()
    return in_threads(place, [inner], limit=1)


def in_a_child(ledger: RunLedger, inner: Callable[[], Any]) -> Any:
    with ledger.run("child"):
        return inner()


def as_a_tool(ledger: RunLedger, inner: Callable[[], Any]) -> Any:
    recorder = Recorder(effects={"inner": ToolEffect(key="inner", approval="finance")})
    return recorder.tool("inner", {}, lambda: "never", call_id="c1")


def as_a_tool_with_a_target(ledger: RunLedger, inner: Callable[[], Any]) -> Any:
    effect: Any = inner
    return Recorder(effects={"inner": effect}).tool("inner", {}, lambda: "never", call_id="c1")


WAYS = [alone, in_a_branch, in_a_child, as_a_tool, as_a_tool_with_a_target]


def outer_with(at: Desk, way: Any, *, caught: list[Misuse] | None, key: str = "inner") -> Any:
    """Run an effect whose function calls another one, and says so or lets the error out."""
    ledger = RunLedger("outer", at.path, effects=at.settings)

    @ledger.effect(key=key, target=Opaque(), approval="finance")
    def inner() -> None:
        raise AssertionError("it was sent")

    @ledger.effect(key="outer", target=Opaque(), approval="finance")
    def outer() -> str:
        try:
            way(ledger, inner)
        except Misuse as error:
            if caught is None:
                raise
            caught.append(error)
        return "done"

    with ledger, ledger.run():
        return outer()


@pytest.mark.parametrize("way", WAYS)
def test_an_effect_within_the_send_of_another_is_refused(way: Any) -> None:
    with desk() as at:
        caught: list[Misuse] = []
        with pytest.raises(ApprovalPending):
            outer_with(at, way, caught=caught)
        at.grant("outer")
        assert outer_with(at, way, caught=caught).json() == "done"
        assert [error.code for error in caught] == ["nested_effect"]
        with at.people() as effects:
            assert effects.inspect("inner") == []


def test_it_is_refused_though_it_was_granted_before(caplog: pytest.LogCaptureFixture) -> None:
    with desk() as at:
        ledger = RunLedger("first", at.path, effects=at.settings)

        @ledger.effect(key="inner", target=Opaque(), approval="finance")
        def inner() -> None:
            raise AssertionError("it was sent")

        with pytest.raises(ApprovalPending), ledger, ledger.run():
            inner()
        at.grant("inner")
        with pytest.raises(ApprovalPending):
            outer_with(at, alone, caught=None)
        at.grant("outer")
        with caplog.at_level(logging.ERROR, "agent_run_ledger"), pytest.raises(EffectInDoubt):
            outer_with(at, alone, caught=None)
        assert (at.last("outer").state, at.last("inner").state) == (A.UNRESOLVED, A.AVAILABLE)
        assert "'inner' was called while effect 'outer' was being sent" in caplog.text


def test_an_effect_within_its_own_send_is_refused_and_waits_for_nobody() -> None:
    with desk() as at:

        def agent() -> Any:
            ledger = RunLedger("ticket-17", at.path, effects=at.settings)

            @ledger.effect(key="mail:{to}", target=Opaque(), approval="finance")
            def mail(to: str) -> str:
                with pytest.raises(Misuse) as caught:
                    mail(to)
                return caught.value.code

            with ledger, ledger.run():
                return mail("ann")

        with pytest.raises(ApprovalPending):
            agent()
        at.grant("mail:ann")
        assert agent().json() == "nested_effect"


def test_after_a_send_another_effect_is_called_as_ever() -> None:
    with desk() as at:
        for key in ("outer", "inner"):
            with suppress(ApprovalPending):
                one_after_the_other(at)
            at.grant(key)
        assert one_after_the_other(at) == ["outer", "inner"]


def one_after_the_other(at: Desk) -> list[Any]:
    ledger = RunLedger("both", at.path, effects=at.settings)
    names = ("outer", "inner")
    steps = [ledger.effect(key=name, name=name, target=Opaque(), approval="finance")(named(name)) for name in names]
    with ledger, ledger.run():
        return [step().json() for step in steps]


def named(name: str) -> Callable[[], str]:
    return lambda: name
