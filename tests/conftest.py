"""What all tests share: the profile of property tests, the rule about skips, and the way to the shared cases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.contract.engine_kit import at_server
from tests.services.postgres import Cluster, running

pytest_plugins = ["tests.house.skips", "tests.house.parts", "pytester"]

ROOT = Path(__file__).resolve().parent.parent

# The gate must say the same thing twice: fixed examples and no clock. A campaign looks further, at random.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("campaign", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("ARL_HYPOTHESIS", "gate"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of this checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared cases beside the checkout; a test that needs it is skipped visibly where it is missing."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared beside this checkout")
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, by a fixture or by the kind of store that it is run on."""
    for item in items:
        given = getattr(item, "callspec", None)
        kinds = () if given is None else [kind for kind in given.params.values() if isinstance(kind, str)]
        if "postgres" in getattr(item, "fixturenames", ()) or "postgres" in kinds:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server of this run's own; without one on the machine its tests are skipped visibly."""
    with running() as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the stores of kits be in a file, or at a server. See engine_kit.each_engine."""
    if request.param == "sqlite":
        yield
        return
    with at_server(request.getfixturevalue("postgres")):
        yield
