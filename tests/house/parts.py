"""Every Nth of the chosen tests, so that halves can run beside each other (`--part 1/2`)."""

from __future__ import annotations

import re

import pytest

_PART = re.compile(r"([1-9][0-9]?)/([1-9][0-9]?)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--part K/N`."""
    words = "of the tests that are chosen otherwise every Nth one, from the Kth on; without it all"
    parser.addoption("--part", default="1/1", metavar="K/N", help=words)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what belongs to the part, after `-m` and `-k` have chosen: all parts together are all tests, none twice."""
    said: str = config.getoption("--part")
    matched = _PART.fullmatch(said)
    if matched is None or int(matched[1]) > int(matched[2]):
        raise pytest.UsageError(f"--part is K/N with K from 1 to N, not {said!r}")
    first, step = int(matched[1]) - 1, int(matched[2])
    config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at % step != first])
    items[:] = items[first::step]
