"""Bytes that an earlier version wrote are still read, and still written; the page on the format says the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_run_ledger.codecs import decode, encode, pack, tree, unpack
from agent_run_ledger.codecs.equality import difference
from agent_run_ledger.codecs.families import TAGS
from agent_run_ledger.codecs.lookup import _LIBRARY_OF_TAG  # pyright: ignore[reportPrivateUsage]
from agent_run_ledger.kernel.digests import value_sha256
from tests.unit.codecs.expressions import evaluate

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "formats" / "encode.md").read_text(encoding="utf-8")
GOLDEN = [
    pytest.param(row, id=f"{path.stem}: {row['value'][:50]}")
    for path in sorted((ROOT / "tests" / "golden" / "values").glob("*.json"))
    for row in json.loads(path.read_text(encoding="utf-8"))
]
ROWS = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| `([^|]+)` \| `([^|]+)` \|$", PAGE, re.MULTILINE)
WRITTEN = {*TAGS, *_LIBRARY_OF_TAG, "codec"}
READABLE_ONLY = {"rescued", "unstorable", "truncated"}


def test_there_are_golden_values() -> None:
    assert len(GOLDEN) > 120
    tags = {tag for param in GOLDEN for tag in re.findall(r'"\$arl":"([a-z-]+)"', param.values[0]["encoded"])}  # type: ignore[index,call-overload,arg-type]
    assert tags == WRITTEN - {"codec"}


@pytest.mark.parametrize("row", GOLDEN)
def test_golden_bytes_are_read_written_and_digested_as_ever(row: dict[str, str]) -> None:
    value = evaluate(row["value"])
    payload = row["encoded"].encode()
    assert difference(decode(payload), value) is None
    assert encode(value) == payload
    assert value_sha256(tree(value, finite=False)).hex() == row["value_sha256"]
    packed = pack(value, limit_bytes=1 << 20)
    assert (packed.encoding, packed.payload, packed.value_sha256.hex()) == (0, payload, row["value_sha256"])


def test_golden_compressed_bytes_are_read_as_ever() -> None:
    payload = bytes.fromhex(
        "7801edd6c10900210c44d15ee66c05db8a5883b01e0c88bd5bc3e4e0417e1a101e93894b7f9f435f555c18159eb19941b3c9224003"
        "8db2f133c0def866944dc20c34d0289b440640038d9f8d9f01f6c637e34827cc4003edb1b269fb00067b41f5"
    )
    assert unpack(1, payload) == {"rows": ["x" * 100] * 50}


@pytest.mark.parametrize(("tag", "expression", "stored"), ROWS, ids=[tag for tag, _, _ in ROWS])
def test_an_example_of_the_page_is_what_is_written(tag: str, expression: str, stored: str) -> None:
    written: dict[str, Any] = json.loads(stored)
    assert written["$arl"] == tag
    assert encode(evaluate(expression)).decode() == stored
    assert difference(decode(stored.encode()), evaluate(expression)) is None


def test_the_page_has_an_example_for_every_tag() -> None:
    assert {tag for tag, _, _ in ROWS} == WRITTEN - {"codec"}
    for tag in READABLE_ONLY | {"codec"}:
        assert f'"$arl":"{tag}"' in PAGE
