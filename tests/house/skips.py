"""Skips that nobody expected fail the run where ARL_NO_SKIPS=1, as in .ci/run."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

# A reason must begin with one of these: what a machine may lawfully refuse. Everything else has to run.
EXPECTED = (
    "no permission to mount",
    "no permission to drop privileges",
    "no permission to make network namespaces",
    "no permission to close a connection without a packet",
    "no PgBouncer on this machine",
    "this platform has no ",
)


def unexpected(reason: str) -> bool:
    """Whether a skip for `reason` must fail the run."""
    return os.environ.get("ARL_NO_SKIPS") == "1" and not reason.startswith(EXPECTED)


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    where = report.longrepr
    reason = where[2] if isinstance(where, tuple) else str(where)
    reason = reason.removeprefix("Skipped: ")
    if unexpected(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped although ARL_NO_SKIPS=1 is set: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the skip of a test."""
    report = yield
    _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge the skip of a whole module."""
    report = yield
    _judge(report)
    return report
