"""Where suites that make stores of their own make them: in a file, or at a server."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from tests.services.postgres import Cluster

Namer = Callable[[pathlib.Path, str], Any]
"""Gives a path below a folder, or the URL of a database that nobody has used."""


def _in_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    return folder / name


_namer: ContextVar[Namer] = ContextVar("namer", default=_in_file)

each_engine = pytest.mark.usefixtures("engine")
"""For suites whose kits ask `new_place` where their stores are to be."""

only_a_file = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
"""For what is about a file, in such a suite."""


def new_place(folder: pathlib.Path, name: str = "effects.db") -> Any:
    """Return where a new store is to be: the path in this folder, or a URL."""
    return _namer.get()(folder, name)


@contextmanager
def at_server(cluster: Cluster) -> Iterator[None]:
    """Let every `new_place` be a database of its own; all of them are dropped at the end."""
    made: list[str] = []

    def name(_folder: pathlib.Path, _name: str) -> str:
        made.append(cluster.new_database())
        return cluster.url(made[-1])

    before = _namer.set(name)
    try:
        yield
    finally:
        _namer.reset(before)
        for database in made:
            cluster.drop(database)
