"""The adapter kit passes an adapter that is right, and finds each of many that are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_run_ledger import Misuse
from agent_run_ledger.testing.adapter_kit import SCENARIOS, AdapterBroken, Found, run_adapter_kit

TOYS = "tests.scenario.programs.toy_agent:"

pytestmark = pytest.mark.fault


def test_an_adapter_that_is_right_holds_in_every_scenario(tmp_path: Path) -> None:
    verdicts = run_adapter_kit(TOYS + "Right", tmp_path)
    verdicts.assert_all()
    assert [one.scenario for one in verdicts.all] == [*SCENARIOS]
    assert {one.found for one in verdicts.all} == {Found.HOLDS}, verdicts.table()


@pytest.mark.parametrize(
    ("subject", "scenario", "words"),
    [
        ("AsksEachTimeAnew", "restart", "life 2 asked the model 2 times instead of 0"),
        ("DumpsTheTime", "restart", "life 2 should have answered"),
        ("DumpsTheTime", "kill_safe", "created holds what looks like a time"),
        ("ForgetsThePrompt", "divergence", "should have raised 'diverged'"),
        ("SwallowsTheHalt", "loop", "it was asked after the stop"),
        ("SwallowsTheHalt", "gate_allowed", "life 1 asked the model 2 times instead of 1"),
        ("CallsTwice", "live", "life 1 ran a tool's body 2 times instead of 1"),
        ("CallsToolsBeside", "kill_unsafe", "life 2 ran a tool's body 1 times instead of 0"),
        ("CallsToolsBeside", "loop", "before the breaker stopped it"),
        ("SwapsResults", "parallel", "the model was not told \"left found 'shelf 1'\" of call-l"),
        ("OneAfterTheOther", "parallel", "the two tools ran one after the other"),
        ("GathersTheStream", "stream", "no chunk arrived before the model had sent them all"),
        ("CallsUnsafeToolsSafe", "kill_unsafe", "life 2 ran a tool's body 1 times instead of 0"),
        ("SaysNothingOfTokens", "tokens", "spent are (calls, tokens in, tokens out) (0, None, None)"),
        ("AsksNoGate", "gate_denied", "life 1 ran a tool's body 1 times instead of 0"),
        ("AsksNoGate", "gate_allowed", "the gate was not asked in life 1"),
        ("AsksNoGate", "gate_swallowed", "life 1 ran a tool's body 1 times instead of 0"),
        ("EndsWithWhatWaits", "gate_swallowed", "what waits was swallowed: the run is completed"),
        ("KnowsNoEffects", "effect_alone", "life 1 ran a tool's body 1 times instead of 0"),
        ("KnowsNoEffects", "effect_rejected", "life 1 ran a tool's body 1 times instead of 0"),
        ("BelievesTheFramework", "effect_alone", "life 1 ran a tool's body 1 times instead of 0"),
        ("ForgetsThatItWaits", "effect_alone", "the run is completed and not suspended"),
        ("AsksUnderANewKey", "effect_granted", "there is no action of the key 'pay:order 7'"),
        ("TakesANoForAnError", "effect_rejected", "life 2 should have answered"),
        ("TriesAgainAfterADoubt", "effect_killed", "life 3 ran a tool's body 1 times instead of 0"),
        ("PhonesHome", "live", "life 1 reached for the network: getaddrinfo 192.0.2.1"),
        ("NeedsItsFrameworkAtOnce", "no_framework", "raised ModuleNotFoundError"),
    ],
)
def test_an_adapter_that_is_wrong_is_found(subject: str, scenario: str, words: str, tmp_path: Path) -> None:
    verdicts = run_adapter_kit(TOYS + subject, tmp_path, only=[scenario])
    (verdict,) = verdicts.all
    assert verdict.found is Found.BROKEN
    assert words in verdict.words
    with pytest.raises(AdapterBroken, match=scenario):
        verdicts.assert_all()


def test_an_agent_that_hangs_is_broken(tmp_path: Path) -> None:
    verdicts = run_adapter_kit(TOYS + "Hangs", tmp_path, only=["live"], timeout_s=3)
    assert "a life did not end within 3 s" in verdicts.of("live").words
    assert verdicts.broken


def test_what_a_framework_cannot_do_is_shown_with_its_reason(tmp_path: Path) -> None:
    verdicts = run_adapter_kit(TOYS + "Declares", tmp_path, only=["live", "stream"])
    verdicts.assert_all()
    assert verdicts.of("stream").found is Found.NOT_SUPPORTED
    assert "stream  not supported  the toy has no sync streams" in verdicts.table()
    with pytest.raises(Misuse, match="needs a reason"):
        run_adapter_kit(TOYS + "DeclaresNothing", tmp_path / "second")


def test_no_verdict_is_no_success_and_an_unknown_scenario_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="there is no scenario 'magic'"):
        run_adapter_kit(TOYS + "Right", tmp_path, only=["magic"])
    with pytest.raises(KeyError):
        run_adapter_kit(TOYS + "Right", tmp_path, only=["live"]).of("restart")
