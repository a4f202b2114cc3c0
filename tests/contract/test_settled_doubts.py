"""What a crash left uncertain of a budget stays counted until a person says what the call used, or that it was none."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from agent_run_ledger import Budget, Reserve, RunLedger
from agent_run_ledger.testing import check_ledger


@pytest.mark.parametrize(
    ("finding", "calls_uncertain", "uncertain", "spent"),
    [
        ({"result": 1, "input_tokens": 30, "output_tokens": 12}, 0, 0, 42),
        ({"error": "refused", "input_tokens": 30, "output_tokens": 0}, 0, 0, 30),
        ({"result": 1}, 1, 500, 0),
        ({"not_done": True}, 0, 0, 0),
    ],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_resolution_that_says_what_was_used_settles_the_budget(
    tmp_path: pathlib.Path, finding: dict[str, Any], calls_uncertain: int, uncertain: int, spent: int, recorded: bool
) -> None:
    path = tmp_path / "settled.db"
    ledger = RunLedger(run_id="r", db_path=path, budget=Budget(max_tokens=1000))

    @ledger.tool(reserves=Reserve(tokens=500))
    def pay() -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ledger.run():
        pay()
    call = "mark-0"
    if recorded:
        told: list[object] = []

        def agent() -> None:
            with ledger.run():
                told.append(pay())
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            agent()
        assert isinstance(told[0], dict)
        call = str(told[0]["call"])
    bound = ledger.bind("r")
    before = bound.budget()
    assert before is not None
    assert before.tokens_uncertain + before.tokens_reserved == 500
    bound.resolve(call, reason="the provider's page says so", actor="ops", **finding)
    after = bound.budget()
    assert after is not None
    assert (after.calls, after.calls_uncertain, after.tokens_uncertain, after.tokens) == (
        1, calls_uncertain, uncertain, spent,
    )  # fmt: skip
    ledger.close()
    check_ledger(path)
