"""The disk that forgets keeps what was synced and nothing else for certain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.testing import PowerDisk, PowerImage
from agent_run_ledger.testing.power_trace import ActKind, DiskAct

A, B = b"a" * 512, b"b" * 512


def create(name: str) -> DiskAct:
    return DiskAct(kind=ActKind.CREATE, name=name)


def write(name: str, content: bytes, offset: int = 0) -> DiskAct:
    return DiskAct(kind=ActKind.WRITE, name=name, offset=offset, content=content)


def truncate(name: str, size: int) -> DiskAct:
    return DiskAct(kind=ActKind.TRUNCATE, name=name, size=size)


def sync(name: str) -> DiskAct:
    return DiskAct(kind=ActKind.SYNC, name=name)


def delete(name: str) -> DiskAct:
    return DiskAct(kind=ActKind.DELETE, name=name)


SYNC_DIRECTORY = DiskAct(kind=ActKind.SYNC_DIRECTORY)


def after(before: dict[str, bytes], *acts: DiskAct, torn: int = 0) -> dict[str, dict[str, bytes]]:
    """What a cut after these acts may leave, by how it came about."""
    return {image.how: dict(image.files) for image in _images(before, acts, torn)}


def _images(before: dict[str, bytes], acts: tuple[DiskAct, ...], torn: int) -> list[PowerImage]:
    disk = PowerDisk(before)
    for act in acts:
        disk.apply(act)
    return list(disk.images(torn=torn, seed=1))


def test_a_write_is_pending_until_its_file_is_synced() -> None:
    assert after({"f": A}, write("f", B)) == {"all kept": {"f": B}, "all lost": {"f": A}}
    assert after({"f": A}, write("f", B), sync("f"), torn=9) == {"all kept": {"f": B}}


def test_the_sync_of_one_file_says_nothing_of_another() -> None:
    assert after({"f": A, "g": A}, write("f", B), write("g", B), sync("g"))["all lost"] == {"f": A, "g": B}


def test_a_new_name_is_pending_until_the_directory_is_synced() -> None:
    acts = (create("f"), write("f", A), sync("f"))
    assert after({}, *acts) == {"all kept": {"f": A}, "all lost": {}}
    assert after({}, *acts, SYNC_DIRECTORY, torn=9) == {"all kept": {"f": A}}


def test_a_deletion_is_pending_until_the_directory_is_synced() -> None:
    assert after({"f": A}, delete("f")) == {"all kept": {}, "all lost": {"f": A}}
    assert after({"f": A}, delete("f"), SYNC_DIRECTORY, torn=9) == {"all kept": {}}


def test_a_name_that_is_used_again_leads_to_the_old_file_until_the_directory_is_synced() -> None:
    acts = (delete("f"), create("f"), write("f", B), sync("f"))
    assert after({"f": A}, *acts)["all lost"] == {"f": A}
    assert after({"f": A}, *acts)["all kept"] == {"f": B}


def test_a_truncation_is_pending_and_what_it_took_comes_back_as_zeros_only_if_it_survives() -> None:
    assert after({"f": A + A}, truncate("f", 512))["all lost"] == {"f": A + A}
    assert after({"f": A + A}, truncate("f", 512))["all kept"] == {"f": A}
    again = after({"f": A + A}, truncate("f", 500), write("f", B, 1024))
    assert again["all kept"] == {"f": A[:500] + bytes(524) + B}


def test_every_named_tear_is_made() -> None:
    content = b"".join(bytes([n]) * 512 for n in range(1, 9))
    found = after({"f": b"", "g": b""}, write("f", content[:2048]), write("f", content[2048:], 2048), torn=40)
    left = {files["f"] for files in found.values()}
    assert content[:3072] + bytes(1024) in left, "the last write torn"
    assert bytes(2048) + content[2048:] in left, "the later half only"
    assert b"".join(content[at : at + 512] + bytes(512) for at in range(0, 4096, 1024)) in left, "even sectors only"
    assert b"".join(bytes(512) + content[at : at + 512] for at in range(512, 4096, 1024)) in left, "odd sectors only"
    both = after({"f": A, "g": A}, write("f", B), write("g", B), torn=40)
    assert {"f": A, "g": B} in both.values()
    assert {"f": B, "g": A} in both.values()
    assert any(how.startswith("random") for how in found)


def test_names_survive_without_bytes_and_bytes_without_names() -> None:
    found = after({"old": A}, create("new"), write("new", B), write("old", B), torn=40)
    assert {"old": A, "new": b""} in found.values()
    assert {"old": B} in found.values()


def test_the_lock_file_which_nobody_syncs_may_be_missing() -> None:
    found = after({"db": A, "db-lock": b""}, write("db-lock", A[:32]), torn=60)
    assert any("db-lock" not in files for files in found.values())
    assert all(files.get("db-lock", b"") in (b"", bytes(32), A[:32]) for files in found.values())


WRITES = st.lists(
    st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=1500)).map(lambda w: write("f", w[1], w[0])),
    min_size=1,
    max_size=5,
)


@given(before=st.binary(max_size=3000), synced=WRITES, pending=WRITES)
def test_a_sector_is_never_torn_and_never_older_than_its_last_sync(
    before: bytes, synced: list[DiskAct], pending: list[DiskAct]
) -> None:
    """Against a plain file that is written to: each sector of each image is one that the file had since the sync."""
    plain = bytearray(before)

    def apply(act: DiskAct) -> bytes:
        plain.extend(bytes(max(0, act.offset + len(act.content) - len(plain))))
        plain[act.offset : act.offset + len(act.content)] = act.content
        return bytes(plain)

    for act in synced:
        apply(act)
    durable = bytes(plain)
    states = [durable, *(apply(act) for act in pending)]
    possible: dict[int, set[bytes]] = {}
    for state in states:
        for at in range(0, len(states[-1]), 512):
            possible.setdefault(at, set()).add(state[at : at + 512].ljust(512, b"\0"))
    for image in _images({"f": before}, (*synced, sync("f"), *pending), 12):
        content = image.files["f"]
        assert len(content) in {len(state) for state in states}
        grown = -(-len(durable) // 512) * 512 if image.how.startswith("random") else len(content)
        for at in range(0, min(len(content), grown), 512):
            if image.how.startswith("random") and at + 512 > len(durable):
                continue  # noise is allowed behind the old end
            sector = content[at : at + 512]
            assert any(sector == whole[: len(sector)] for whole in possible[at]), (image.how, at)
    kept, *_ = _images({"f": before}, (*synced, sync("f"), *pending), 0)
    assert kept.files["f"] == states[-1]


def test_the_same_seed_leaves_the_same_images() -> None:
    acts = tuple(write("f", bytes([n]) * 700, 600 * n) for n in range(6))
    assert _images({"f": A}, acts, 12) == _images({"f": A}, acts, 12)
    assert len({image.files["f"] for image in _images({"f": A}, acts, 12)}) == 14
