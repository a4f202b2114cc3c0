"""Digests: what is equal has one, what differs anywhere has another, and no kind can pass for another kind."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.canonical import NotCanonical, canonical
from agent_run_ledger.kernel.digests import element_sha256s, fingerprint, list_sha256, short_digest, value_sha256
from tests.unit.kernel_formats import golden, worked_example

small_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
digests32 = st.binary(min_size=32, max_size=32)
BASE: dict[str, Any] = {
    "name": "review",
    "version": "1",
    "inputs": {"a": b"\1" * 32, "b": b"\2" * 32},
    "environment": {"model": b"\3" * 32},
}


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def test_a_value_is_digested_under_its_domain() -> None:
    assert value_sha256({"b": 1, "a": [2]}) == sha256(b'agent-run-ledger/value/v1\n{"a":[2],"b":1}')
    assert value_sha256("x") == sha256(b'agent-run-ledger/value/v1\n"x"')


def test_a_list_is_a_chain_of_its_elements_digests() -> None:
    first, second = sha256(b"agent-run-ledger/value/v1\n1"), sha256(b'agent-run-ledger/value/v1\n["x",[]]')
    assert value_sha256([1, ["x", []]]) == sha256(b"agent-run-ledger/list/v1\n" + first + second)
    assert value_sha256([]) == sha256(b"agent-run-ledger/list/v1\n")
    assert element_sha256s([1, ["x", []]]) == [first, second]


@given(st.lists(small_trees, max_size=5))
def test_a_growing_list_needs_only_the_new_elements_digest(tree: list[Any]) -> None:
    kept = element_sha256s(tree[:-1])
    assert value_sha256(tree) == list_sha256(kept + element_sha256s(tree[-1:]))


@given(small_trees, small_trees)
def test_digests_are_equal_exactly_when_the_canonical_bytes_are(one: Any, other: Any) -> None:
    assert (value_sha256(one) == value_sha256(other)) is (canonical(one) == canonical(other))


def test_a_list_and_what_looks_like_it_have_different_digests() -> None:
    alike: list[Any] = [
        [],
        [[]],
        {},
        None,
        "",
        "[]",
        [None],
        [{}],
        [""],
        {"": []},
        [[], []],
        [1, 2],
        [[1, 2]],
        [[1], 2],
    ]
    assert len({value_sha256(tree) for tree in alike}) == len(alike)


@pytest.mark.parametrize(
    ("tree", "path"), [([1, {"a": math.nan}], "$[1].a"), ([math.nan], "$[0]"), ({"x": math.inf}, "$.x")]
)
def test_a_refusal_names_the_path_from_the_whole_value(tree: Any, path: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        value_sha256(tree)
    assert caught.value.path == path


def test_a_fingerprint_is_the_digest_of_its_canonical_statement() -> None:
    statement = b'{"environment":{"model":"%s"},"inputs":{"a":"%s","b":"%s"},"name":"review","v":1,"version":"1"}' % (
        b"03" * 32,
        b"01" * 32,
        b"02" * 32,
    )
    assert fingerprint(**BASE) == sha256(b"agent-run-ledger/fingerprint/v1\n" + statement)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "review2"},
        {"version": "2"},
        {"version": ""},
        {"inputs": {"a": b"\1" * 32}},
        {"inputs": {"a": b"\1" * 32, "b": b"\1" * 32}},
        {"inputs": {"a": b"\2" * 32, "b": b"\1" * 32}},
        {"inputs": {"a": b"\1" * 32, "c": b"\2" * 32}},
        {"inputs": {"a": b"\1" * 32, "b": b"\2" * 32, "c": b"\2" * 32}},
        {"environment": {}},
        {"environment": {"model": b"\4" * 32}},
        {"environment": {"Model": b"\3" * 32}},
        {"inputs": BASE["environment"], "environment": BASE["inputs"]},
    ],
    ids=repr,
)
def test_every_part_of_a_call_is_in_its_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(**{**BASE, **change}) != fingerprint(**BASE)


@given(st.dictionaries(st.text(max_size=4), digests32, max_size=4), st.randoms())
def test_the_order_of_inputs_does_not_count(inputs: dict[str, bytes], random: Any) -> None:
    shuffled = list(inputs.items())
    random.shuffle(shuffled)
    expected = fingerprint(name="n", version="1", inputs=inputs, environment=inputs)
    assert fingerprint(name="n", version="1", inputs=dict(shuffled), environment=dict(shuffled)) == expected


def test_an_environment_key_that_has_no_bytes_is_named_by_its_path() -> None:
    with pytest.raises(NotCanonical) as caught:
        fingerprint(**{**BASE, "environment": {"model": b"\1" * 32, "pro\ud800mpt": b"\2" * 32}})
    assert caught.value.path == '$.environment["pro\\ud800mpt"]'


def test_a_short_digest_is_eight_bytes_of_a_salted_hash() -> None:
    salt, digest = bytes(range(32)), b"\5" * 32
    tag = sha256(salt + "$.größe".encode() + b"\0" + digest)[:8]
    short = short_digest(salt, "$.größe", digest)
    assert len(short) == 11
    assert base64.urlsafe_b64decode(short + "=") == tag


def test_short_digests_are_url_safe() -> None:
    shorts = "".join(short_digest(b"s" * 32, f"$[{index}]", b"d" * 32) for index in range(200))
    assert set(shorts) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert {"-", "_"} <= set(shorts)


def test_salt_path_and_digest_each_change_a_short_digest() -> None:
    salts, paths, digests = [b"a" * 32, b"b" * 32], ["$.a", "$.b"], [b"c" * 32, b"d" * 32]
    shorts = {short_digest(*parts) for parts in itertools.product(salts, paths, digests)}
    assert len(shorts) == 8


def from_hex(digests: dict[str, str]) -> dict[str, bytes]:
    return {key: bytes.fromhex(digest) for key, digest in digests.items()}


@pytest.mark.parametrize("case", golden("fingerprint")["values"], ids=lambda case: case["json"])
def test_value_digests_of_an_earlier_version_still_hold(case: dict[str, str]) -> None:
    assert value_sha256(json.loads(case["json"])).hex() == case["value_sha256"]


@pytest.mark.parametrize("case", golden("fingerprint")["fingerprints"], ids=lambda case: case["fingerprint_hex"][:8])
def test_fingerprints_of_an_earlier_version_still_hold(case: dict[str, Any]) -> None:
    made = fingerprint(
        name=case["name"],
        version=case["version"],
        inputs=from_hex(case["inputs"]),
        environment=from_hex(case["environment"]),
    )
    assert made.hex() == case["fingerprint_hex"]


@pytest.mark.parametrize("case", golden("fingerprint")["short_digests"], ids=lambda case: case["short"])
def test_short_digests_of_an_earlier_version_still_hold(case: dict[str, str]) -> None:
    salt, digest = bytes.fromhex(case["salt_hex"]), bytes.fromhex(case["digest_hex"])
    assert short_digest(salt, case["path"], digest) == case["short"]


def test_the_worked_example_of_the_page() -> None:
    example = worked_example("fingerprint")
    tree = json.loads(example["json"])
    digest = value_sha256(tree)
    assert [element.hex() for element in element_sha256s(tree)] == example["element_sha256s"]
    assert digest.hex() == example["value_sha256"]
    inputs = {example["parameter"]: digest}
    made = fingerprint(name=example["name"], version=example["version"], inputs=inputs, environment={})
    assert made.hex() == example["fingerprint_hex"]
    assert short_digest(bytes.fromhex(example["salt_hex"]), example["path"], digest) == example["short"]
