"""A skip that nobody expected fails where ARL_NO_SKIPS=1 is set."""

from __future__ import annotations

import pytest

from tests.house.skips import unexpected
from tests.services.postgres import INSTALL, MISSING

PLUGIN = ("-p", "tests.house.skips", "-p", "no:cacheprovider")
MODULE = """
import pytest

def test_runs(): pass
def test_lawful(): pytest.skip("no permission to mount a file system")
def test_other(): pytest.skip("did not feel like it")
@pytest.mark.xfail(strict=True)
def test_expected_failure(): raise ValueError
"""


def _run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, root: object, flag: str) -> pytest.RunResult:
    monkeypatch.setenv("ARL_NO_SKIPS", flag)
    monkeypatch.setenv("PYTHONPATH", str(root))
    return pytester.runpytest_subprocess(*PLUGIN)


def test_without_the_flag_skips_are_skips(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, root: object
) -> None:
    pytester.makepyfile(MODULE)
    _run(pytester, monkeypatch, root, "0").assert_outcomes(passed=1, skipped=2, xfailed=1)


def test_with_the_flag_only_expected_skips_stay(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, root: object
) -> None:
    pytester.makepyfile(MODULE)
    result = _run(pytester, monkeypatch, root, "1")
    result.assert_outcomes(passed=1, skipped=1, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*skipped although ARL_NO_SKIPS=1 is set: did not feel like it*"])


def test_a_module_that_skips_itself_is_seen_too(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, root: object
) -> None:
    pytester.makepyfile("import pytest\npytest.importorskip('no_such_module_at_all')\ndef test_a(): pass\n")
    assert _run(pytester, monkeypatch, root, "1").ret != 0
    assert _run(pytester, monkeypatch, root, "0").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_missing_server_is_no_reason_that_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARL_NO_SKIPS", "1")
    assert unexpected(MISSING)
    assert INSTALL in MISSING, "it says what to do"
