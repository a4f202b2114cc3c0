"""Key files and passphrases: who may read them, and what is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_run_ledger.errors import Misuse, Refused
from agent_run_ledger.keys import Secret, find_passphrase, private_files, read_key, write_key
from agent_run_ledger.keys.passphrases import PASSPHRASE, PASSPHRASE_FILE
from agent_run_ledger.keys.private_files import MAX_BYTES, exposed, read_private, write_private
from tests.unit.effects.trust_examples import key

ANN = key("ann")


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=["no umask", "usual umask", "strict umask"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_key_file_is_its_owners_only_under_any_umask(tmp_path: Path) -> None:
    write_key(tmp_path / "ann.pem", ANN)
    status = (tmp_path / "ann.pem").stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert read_key(tmp_path / "ann.pem").key_id == ANN.key_id


def test_it_never_had_another_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    opened = os.open

    def noted(path: str | Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(path, flags, mode)
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    before = os.umask(0)
    monkeypatch.setattr(private_files.os, "open", noted)
    try:
        write_key(tmp_path / "ann.pem", ANN)
    finally:
        os.umask(before)
    assert modes[0] == 0o600


def test_an_encrypted_file_comes_back_with_its_passphrase(tmp_path: Path) -> None:
    write_key(tmp_path / "ann.pem", ANN, passphrase=Secret(b"phrase"))
    assert read_key(tmp_path / "ann.pem", passphrase=Secret(b"phrase")).key_id == ANN.key_id
    with pytest.raises(Refused) as refusal:
        read_key(tmp_path / "ann.pem")
    assert refusal.value.code == "passphrase_needed"


def test_no_key_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "ann.pem"
    write_key(path, ANN)
    for there in (path, _link(tmp_path / "link.pem", tmp_path / "nowhere")):
        with pytest.raises(Refused) as refusal:
            write_key(there, key("bob"))
        assert refusal.value.code == "file_exists"
    assert read_key(path).key_id == ANN.key_id
    assert not (tmp_path / "nowhere").exists()


def _link(link: Path, to: Path) -> Path:
    link.symlink_to(to)
    return link


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o660, 0o777])
def test_what_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    write_key(tmp_path / "ann.pem", ANN)
    (tmp_path / "ann.pem").chmod(mode)
    for path in (tmp_path / "ann.pem", _link(tmp_path / "link.pem", tmp_path / "ann.pem")):
        with pytest.raises(Refused) as refusal:
            read_key(path)
        assert refusal.value.code == "exposed"
        assert "chmod 600" in refusal.value.hint


def test_what_belongs_to_another_user_is_refused() -> None:
    assert exposed(0o600, 1001, 1000)
    assert exposed(0o600, 1001, 0)
    assert not exposed(0o600, 1000, 1000)
    assert not exposed(0o400, 0, 1000)


def test_what_is_no_file_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("pipe", "folder", "nothing"):
        with pytest.raises(Refused) as refusal:
            read_key(tmp_path / name)
        assert refusal.value.code == "unreadable"


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    write_private(tmp_path / "most", Secret(b"x" * MAX_BYTES))
    assert len(read_private(tmp_path / "most").reveal()) == MAX_BYTES
    write_private(tmp_path / "more", Secret(b"x" * (MAX_BYTES + 1)))
    with pytest.raises(Refused, match="at most"):
        read_private(tmp_path / "more")


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(private_files.os, "fsync", full)
        with pytest.raises(Refused) as refusal:
            write_key(tmp_path / "ann.pem", ANN)
    assert refusal.value.code == "unwritable"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refusal:
        write_key(tmp_path / "none" / "ann.pem", ANN)
    assert refusal.value.code == "unwritable"


def test_a_key_file_and_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(private_files.os, "fsync", lambda fd: synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)))
    write_key(tmp_path / "ann.pem", ANN)
    assert synced == [False, True]


def test_a_passphrase_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "phrase"
    for held in (b"phrase", b"phrase\n", b"phrase\r\n"):
        path.unlink(missing_ok=True)
        write_private(path, Secret(held))
        found = find_passphrase({PASSPHRASE_FILE: str(path)})
        assert found is not None
        assert found.reveal() == b"phrase"
    found = find_passphrase({PASSPHRASE: "a phrase \udcff"})
    assert found is not None
    assert found.reveal() == b"a phrase \xff"
    assert find_passphrase({}) is None


def test_a_passphrase_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "phrase").write_bytes(b"phrase")
    (tmp_path / "phrase").chmod(0o644)
    with pytest.raises(Refused) as refusal:
        find_passphrase({PASSPHRASE_FILE: str(tmp_path / "phrase")})
    assert refusal.value.code == "exposed"


def test_two_passphrases_or_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse) as misuse:
        find_passphrase({PASSPHRASE: "a", PASSPHRASE_FILE: "b"})
    assert misuse.value.code == "two_passphrases"
    write_private(tmp_path / "phrase", Secret(b"\n"))
    for environment in ({PASSPHRASE: ""}, {PASSPHRASE_FILE: str(tmp_path / "phrase")}):
        with pytest.raises(Refused) as refusal:
            find_passphrase(environment)
        assert refusal.value.code == "empty_passphrase"
