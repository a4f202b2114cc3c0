"""The identity of a call in a dynamic run, what is kept of its parts, and arguments that a body changed in place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from agent_run_ledger import LedgerError, Step, codecs
from agent_run_ledger.kernel.digests import list_sha256, short_digest
from agent_run_ledger.runs.arguments import bind_arguments
from agent_run_ledger.runs.calls import CallIdentity, changed_arguments, changed_warning, identify, identify_call
from agent_run_ledger.runs.children import EDGE, KEY_CHARACTERS, KEYS, tagged_places
from tests.unit.codecs import strategies
from tests.unit.kernel_formats import golden

SALT = b"s" * 32
LONG = "x" * 1000


def ask(q: Any, k: Any = 1, *more: Any, **named: Any) -> None: ...


def made(step: Step[..., Any], *args: Any, **kwargs: Any) -> CallIdentity:
    bound = bind_arguments(step, args, kwargs)
    return identify_call(step, bound, {}, cache=codecs.DigestCache())


def children(identity: CallIdentity) -> Any:
    return json.loads(identity.stored_inputs(SALT, [])).get("c")


@given(strategies.plain, strategies.plain)
def test_an_identity_is_that_of_the_arguments_digests(q: Any, k: Any) -> None:
    digests = {"q": codecs.value_digest(q), "k": codecs.value_digest(k)}
    expected = identify(Step(ask), digests, {"m": b"e" * 32})
    bound = {"q": q, "k": k}
    found = identify_call(Step(ask), bound, {"m": b"e" * 32}, cache=codecs.DigestCache(), scope=b"x" * 12, occurrence=3)
    assert found.arguments == digests
    assert found.key == (b"x" * 12, "ask", expected.fingerprint, 3)
    assert found.environment == expected.environment


def test_surplus_arguments_enter_apart() -> None:
    one = codecs.value_digest(1)
    found = made(Step(ask), 0, 0, 1, 1, z=1)
    assert found.arguments["*more"] == list_sha256([one, one])
    assert found.arguments["**named.z"] == one
    alike = [
        made(Step(ask), 0, 0, *a, **k) for a, k in [((), {}), ((1,), {}), ((1, 1), {}), (((1, 1),), {}), ((), {"m": 1})]
    ]
    assert len({identity.fingerprint for identity in alike}) == len(alike)


@pytest.mark.parametrize("ignored", ["q", "k", "more", "named"])
def test_what_is_ignored_does_not_enter(ignored: str) -> None:
    step = Step(ask, ignore=[ignored])
    given_ = {"q": object(), "k": object(), "*more": (object(),), "**named.a.b": object()}
    own = {name for name in given_ if name.strip("*").split(".")[0] == ignored}
    bound: dict[str, Any] = {name: value if name in own else (1,) for name, value in given_.items()}
    found = identify_call(step, bound, {}, cache=codecs.DigestCache())
    assert set(found.arguments) == set(given_) - own
    assert found.stored_inputs(SALT, [])


@pytest.mark.parametrize(
    ("args", "named", "words"),
    [
        ((object(),), {}, "step 'ask', argument 'q': $: object has no stored form"),
        (([1, {"a": float("nan")}],), {}, "step 'ask', argument 'q': $[1].a: nan has no digest"),
        ((1, 1, object()), {}, "step 'ask', argument '*more': $: object has no stored form"),
        ((1,), {"z": object()}, "step 'ask', argument '**named.z': $: object has no stored form"),
    ],
)
def test_an_argument_without_a_digest_is_named_with_a_way_out(args: Any, named: Any, words: str) -> None:
    with pytest.raises(LedgerError) as caught:
        made(Step(ask), *args, **named)
    assert str(caught.value).startswith(words)
    name = words.split("'")[3].strip("*").split(".")[0]
    assert f"pass an id instead, or name the parameter in ignore=['{name}']" in caught.value.hint


# -- tags of parts -----------------------------------------------------------------------------------------------------


def tag(path: str, value: Any) -> str:
    return short_digest(SALT, path, codecs.element_digest(value))[:4]


@pytest.mark.parametrize("count", [0, 1, EDGE, 2 * EDGE, 2 * EDGE + 1, 200])
@pytest.mark.parametrize("element", [1, {"role": "user", "content": LONG}, [1]])
def test_of_a_list_the_length_and_the_ends_are_kept(count: int, element: Any) -> None:
    values = [element] * count
    places = [at for at in range(count) if at < EDGE or at >= count - EDGE]
    assert tagged_places(count) == places
    assert children(made(Step(ask), values)) == {"q": [count, "".join(tag(f"a.q[{at}]", element) for at in places)]}


def test_of_a_dict_the_first_entries_with_a_name_are_kept() -> None:
    entries: dict[Any, Any] = {1: "x", "\ud800": 1, "k" * (KEY_CHARACTERS + 1): 1}
    entries |= {f"n{n}": [n] for n in range(KEYS + 1)}
    kept = children(made(Step(ask), entries))
    assert kept == {"q": {f"n{n}": tag(f"a.q.n{n}", [n]) for n in range(KEYS)}}
    assert children(made(Step(ask), 1, "x", (1, 2))) is None


def test_the_tags_tell_nothing_without_the_salt() -> None:
    identity = made(Step(ask), {"when": "2026-01-01"}, [1, 2])
    one, other = (json.loads(identity.stored_inputs(salt, []))["c"] for salt in (SALT, b"t" * 32))
    assert one["q"]["when"] != other["q"]["when"]
    assert one["k"][1] != other["k"][1]


def test_a_pipelines_call_keeps_none() -> None:
    identity = identify(Step(ask), {"q": codecs.value_digest([1])}, {})
    assert json.loads(identity.stored_inputs(SALT, [])).keys() == {"a"}


def test_of_an_argument_that_was_changed_meanwhile_nothing_false_is_kept() -> None:
    step = Step(ask)
    transcript, light, state = [{"content": LONG}], [1], {"n": 1}
    identity = identify_call(step, {"q": transcript, "k": light, "**named.s": state}, {}, cache=codecs.DigestCache())
    before = children(identity)
    transcript.append({"content": "new"})
    light.append(2)
    state["n"] = object()  # type: ignore[assignment]
    assert set(before) == {"q", "k", "**named.s"}
    assert children(identity) == {"q": before["q"]}


def test_what_was_found_changed_is_not_looked_at_again() -> None:
    state, other = {"n": 1}, {"m": 1}
    identity = identify_call(Step(ask), {"q": state, "k": other}, {}, cache=codecs.DigestCache())
    before = children(identity)
    assert identity.given is not None
    identity.given.changed = ["q"]
    assert children(identity) == {"k": before["k"]}


@pytest.mark.parametrize("case", golden("inputs"), ids=lambda case: case["step"])
def test_the_inputs_of_a_record_of_an_earlier_version_still_hold(case: dict[str, Any]) -> None:
    salt = bytes.fromhex(case["salt_hex"])
    step = Step(ask, name=case["step"], version=case["version"])
    environment = {name: codecs.value_digest(value) for name, value in case["environment"].items()}
    identity = identify_call(step, case["arguments"], environment, cache=codecs.DigestCache())
    assert identity.stored_inputs(salt, [], after=case["after"]).decode() == case["inputs"]
    assert identity.fingerprint.hex() == case["fingerprint_hex"]
    assert identity.differences(case["inputs"].encode(), salt) == []


# -- changed in place --------------------------------------------------------------------------------------------------


def test_an_argument_that_was_changed_in_place_is_named() -> None:
    cache = codecs.DigestCache()
    transcript: list[Any] = [{"role": "user", "content": LONG}, {"role": "user", "content": "short"}]
    bound: dict[str, Any] = {"q": transcript, "k": {"n": [1]}, "*more": ([1], 2), "**named.t": ([1], "x"), "s": "text"}
    before = identify_call(Step(ask), bound, {}, cache=cache).arguments
    assert changed_arguments(before, bound, cache=cache) == []
    for name, change in [
        ("q", lambda: transcript[1].update(content="shirt")),
        ("q", lambda: transcript.append("more")),
        ("k", lambda: bound["k"]["n"].append(2)),
        ("*more", lambda: bound["*more"][0].append(2)),
        ("**named.t", lambda: bound["**named.t"][0].append(float("nan"))),
    ]:
        before = {**before, name: identify_call(Step(ask), {name: bound[name]}, {}, cache=cache).arguments[name]}
        change()
        assert name in changed_arguments(before, bound, cache=cache)
    assert changed_arguments(before, bound, cache=cache) == ["q", "k", "*more", "**named.t"]


def test_what_is_ignored_may_change() -> None:
    cache = codecs.DigestCache()
    bound: dict[str, Any] = {"q": [1], "k": [1]}
    before = identify_call(Step(ask, ignore=["k"]), bound, {}, cache=cache).arguments
    bound["k"].append(2)
    assert changed_arguments(before, bound, cache=cache) == []


def test_the_warning_names_run_step_and_arguments() -> None:
    assert "step 'ask' of run 'r1': its argument was changed in place while it ran ('q');" in changed_warning(
        "r1", "ask", ["q"]
    )
    assert "its arguments were changed in place while it ran ('q', 'k');" in changed_warning("r1", "ask", ["q", "k"])
