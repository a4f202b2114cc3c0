"""Programs in the pages run, links in them lead somewhere, and the checks themselves bite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Program, anchors, blocks, links, pages, programs

PROGRAMS = [
    pytest.param(program, id=f"{page.relative_to(ROOT).as_posix()}:{program.line}")
    for page in pages()
    for program in programs(page.read_text(encoding="utf-8"))
]

SAMPLE = """# A page
```python run
print("one")
```
which prints

```text output
one
```
```python
not run
```
See [there](other.md#a-heading) and `[no](link.md)`.
"""


def _run(program: Program, place: Path) -> subprocess.CompletedProcess[str]:
    script = place / "program.py"
    script.write_text(program.body, encoding="utf-8")
    # The program is a reader's: it may not see the settings of whoever runs the tests.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AGENT_RUN_LEDGER_", "OPENAI_"))}
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_in_a_page_runs_and_prints_what_the_page_says(program: Program, tmp_path: Path) -> None:
    done = _run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert program.output is None or done.stdout == program.output


def test_links_inside_the_project_lead_to_a_page_and_a_heading() -> None:
    dead: list[str] = []
    for page in pages():
        for link in links(page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = page.parent / path if path else page
            if not target.exists():
                dead.append(f"{page.relative_to(ROOT)}: {link}")
            elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
                dead.append(f"{page.relative_to(ROOT)}: no heading for {link}")
    assert dead == []


def test_a_marked_block_is_a_program_with_its_output() -> None:
    (program,) = programs(SAMPLE)
    assert program == Program(line=2, body='print("one")\n', output="one\n")
    assert [block.language for block in blocks(SAMPLE)] == ["python", "text", "python"]
    assert links(SAMPLE) == ["other.md#a-heading"]
    assert anchors("# What is shown, and what is not\n## `op_id` (v1)\n") == {
        "what-is-shown-and-what-is-not",
        "op-id-v1",
    }


@pytest.mark.parametrize(
    "page",
    [
        "```python runs\nx = 1\n```\n",
        "```sh run\nls\n```\n",
        "```text output\nx\n```\n",
    ],
)
def test_a_misplaced_mark_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        programs(page)


def test_a_program_that_fails_is_seen(tmp_path: Path) -> None:
    assert _run(Program(line=1, body="raise SystemExit(3)", output=None), tmp_path).returncode == 3
