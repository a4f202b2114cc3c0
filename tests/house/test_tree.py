"""The tree names no registry, no machine and no file that is made."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, name_of, tree_files

# Written so that no pattern matches its own line.
ADDRESSES = re.compile(
    r"--(?:extra-)?index[-]url|--find[-]links\b(?=[ =]\S)|://[^\s\"'`)<>]*/simple\b|p[y]pi\.org|p[y]thonhosted"
    r"|n[p]mjs|\"resolved\": *\"http",
    re.IGNORECASE,
)
# /home/me is nobody's: examples may use it.
MACHINE_PATHS = re.compile(
    r"(?:^|[^A-Za-z0-9_.~/])/(?:home/(?!me\b)|root/|Users/(?!me\b)|w[o]rk/|workspace/|mnt/)[A-Za-z.]", re.MULTILINE
)


def _found(pattern: re.Pattern[str]) -> list[str]:
    hits: list[str] = []
    for path in tree_files():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if pattern.search(line):
                hits.append(f"{name_of(path)}:{number}: {line.strip()[:120]}")
    return hits


@pytest.mark.parametrize(
    "line",
    [
        "pip install --extra-index" + "-url x",
        "https://mirror.example/root/" + "simple",
        "https://files.python" + "hosted.org/a.whl",
    ],
)
def test_an_address_is_seen(line: str) -> None:
    assert ADDRESSES.search(line)


@pytest.mark.parametrize("path", ["/ho" + "me/alice/x", "see /ro" + "ot/.cache", '"/Us' + 'ers/a"'])
def test_a_path_of_a_machine_is_seen(path: str) -> None:
    assert MACHINE_PATHS.search(path)


def test_no_file_names_an_address_of_a_package_registry() -> None:
    assert _found(ADDRESSES) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert _found(MACHINE_PATHS) == []


def test_lock_files_pin_and_hash_every_package_and_nothing_else() -> None:
    locks = sorted((ROOT / "requirements").rglob("*.txt"))
    assert [lock.name for lock in locks] == [
        *("langchain.txt", "mcp.txt", "openai_agents.txt"),
        *("build.txt", "core.txt", "dev.txt"),
        *("dbos.txt", "langgraph.txt", "unhinged.txt"),
    ]
    entry = re.compile(r"[a-z0-9.-]+==[^ \\]+(?: ; [^\\]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+")
    for lock in locks:
        assert entry.sub("", lock.read_text(encoding="utf-8")) == "", (
            f"{lock.name}: something that is not a pinned, hashed package"
        )


def test_no_package_has_two_versions_in_the_lock_files() -> None:
    pinned = {
        lock.stem: set(re.findall(r"^[a-z0-9.-]+==[^ ]+", lock.read_text(encoding="utf-8"), re.MULTILINE))
        for lock in (ROOT / "requirements").glob("*.txt")
    }
    assert pinned["core"] | pinned["build"] <= pinned["dev"]


def test_nothing_that_is_made_is_kept() -> None:
    made = re.compile(r"\.(?:pyc|db|db-wal|db-shm|db-lock|whl|egg-info)$")
    kept = [name_of(path) for path in tree_files() if made.search(path.name) and "golden" not in path.parts]
    assert kept == []
