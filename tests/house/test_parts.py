"""All parts of a run together are the run, and no test is in two of them."""

from __future__ import annotations

import pytest

PLUGIN = ("-p", "tests.house.parts", "-p", "no:cacheprovider", "-v", "-m", "chosen")
MODULE = """
import pytest

@pytest.mark.chosen
@pytest.mark.parametrize("number", range(7))
def test_chosen(number): pass

@pytest.mark.parametrize("number", range(4))
def test_other(number): pass
"""


def _ran(pytester: pytest.Pytester, part: str) -> list[str]:
    result = pytester.runpytest_inprocess(*PLUGIN, "--part", part)
    return [line.split()[0] for line in result.outlines if line.startswith("test_") and "PASSED" in line]


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers = chosen: some of them")
    pytester.makepyfile(MODULE)
    return pytester


@pytest.mark.parametrize("number", [1, 2, 3, 8])
def test_the_parts_are_the_whole_and_share_nothing(tests: pytest.Pytester, number: int) -> None:
    parts = [_ran(tests, f"{at}/{number}") for at in range(1, number + 1)]
    together = [name for part in parts for name in part]
    assert len(together) == len(set(together)) == 7
    assert all("test_chosen" in name for name in together)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", ""])
def test_what_is_no_part_runs_nothing(tests: pytest.Pytester, part: str) -> None:
    result = tests.runpytest_inprocess(*PLUGIN, f"--part={part}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--part is K/N" in result.stderr.str()
