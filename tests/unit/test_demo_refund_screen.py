"""What a person sees of the refund's story: words that fold on a terminal, and lines that are as they are signed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_run_ledger.demo.refund import screen
from agent_run_ledger.demo.refund.story import Told

WORDS = "Nothing was sent: the run is suspended, which costs nothing. You sign exactly these bytes, and nothing else:"
SIGNED = "arl/display/v1\n" + "body " * 20 + "END"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_words_fold_on_a_terminal_and_what_is_signed_or_copied_does_not(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = dict.fromkeys(Told.__dataclass_fields__, 1)
    told = Told(
        **{**facts, "lives": (), "lives_without": (), "database": tmp_path / "d.db", "not_protected": ("x " * 60,)}
    )

    def tell(_: object, say: Any) -> Told:
        say(WORDS)
        say(SIGNED)
        return told

    monkeypatch.setattr(screen, "tell_story", tell)
    out = io.StringIO()
    screen.show_story(None, Console(file=out, force_terminal=is_terminal, width=80, color_system=None))
    lines = out.getvalue().splitlines()
    exact = {*SIGNED.splitlines(), *(f"  {command}" for command in screen.next_commands(told))}
    assert exact <= set(lines)
    assert any(len(line) > 80 for line in lines if line not in exact) is not is_terminal
