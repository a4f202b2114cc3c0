"""What approvers are shown: all of the bytes or a word of what is left out, and nothing that poses as another thing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_run_ledger.kernel.effects.display import MAX_SHOWN_BYTES, display, display_sha256, shown
from agent_run_ledger.kernel.effects.request import BadRequest, Call, Request, request_bytes
from tests.unit.kernel_formats import golden


def _shown(body: bytes) -> str:
    return display(request_bytes(Request.bytes("POST", "/a", body)))


def test_the_golden_displays_are_read_by_people() -> None:
    first, _, text, raw, twice, call = (case["display"] for case in golden("request"))
    assert "POST /v1/refunds?dry=no\n" in first
    assert '|   "cents": 3000,\n' in first
    assert '|   "note": "für Ann\\u{202e}\\u{a}",\n' in first
    assert first.endswith("letters beyond ASCII: ü=U+00FC\n")
    assert "| one\\\\two\\u{d}\n| | POST /evil\n| \n" in text
    assert "hexadecimal\n| fa fb fc fd fe ff 72" in raw
    assert '| {"a":1,"a":2}\n' in twice
    assert "call shop.refund\n" in call


@given(st.text(max_size=60))
def test_no_text_can_pose_as_anything_else(text: str) -> None:
    lines = _shown(text.encode()).split("\n")
    assert lines[2] == "POST /a"
    assert lines[-1] == ""
    body = [line for line in lines[4:-1] if not line.startswith("letters beyond ASCII: ")]
    assert all(line.startswith("| ") for line in body)
    assert all(char <= "~" or char.isalpha() for line in lines for char in line)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_other_bytes_are_another_text(one: bytes, other: bytes) -> None:
    assert (_shown(one) == _shown(other)) is (one == other)


@given(st.text(max_size=40), st.text(max_size=40))
def test_other_text_is_shown_otherwise(one: str, other: str) -> None:
    assert (shown(one) == shown(other)) is (one == other)


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [("\x1b[2J", "\\u{1b}[2J"), ("a\u202eb", "a\\u{202e}b"), ("a\u200bb", "a\\u{200b}b"), ("e\u0301", "e\\u{301}"),
     ("\u2028", "\\u{2028}"), ("\\u{41}", "\\\\u{41}"), ("\u05d0", "\\u{5d0}"), ("\U0001f600", "\\u{1f600}"),
     ("\x7f\x85\xa0", "\\u{7f}\\u{85}\\u{a0}"), ("\u00d7\u00f7", "\\u{d7}\\u{f7}"), ("~é\u017f", "~é\u017f")],
)  # fmt: skip
def test_what_is_no_letter_is_written_as_its_number(hostile: str, harmless: str) -> None:
    assert shown(hostile) == harmless
    assert f'"{harmless}"' in display(request_bytes(Call.of("f", {"a": hostile})))


def test_letters_that_look_like_others_are_named() -> None:
    assert _shown("p\u0430y".encode()).endswith("letters beyond ASCII: \u0430=U+0430\n")
    assert "letters beyond" not in _shown(b"pay")


def test_a_quote_does_not_end_a_string() -> None:
    assert '"a": "\\", \\"b\\": \\"\\\\\\\\"' in _shown(b'{"a":"\\", \\"b\\": \\"\\\\\\\\"}')


def test_of_a_long_body_it_says_what_is_left_out() -> None:
    whole = _shown(b"a" * MAX_SHOWN_BYTES)
    assert "NOT SHOWN" not in whole
    for body in (b"a" * (MAX_SHOWN_BYTES + 7), b"\xff" * (MAX_SHOWN_BYTES + 7), b"[" + b"1," * MAX_SHOWN_BYTES + b"1]"):
        told = _shown(body)
        assert f"body, {len(body)} bytes, " in told
        assert told.endswith(f"\nNOT SHOWN: the last {len(body) - MAX_SHOWN_BYTES} bytes of the body\n")
        assert len(told) < 4 * MAX_SHOWN_BYTES


def test_a_letter_at_the_cut_is_not_halved() -> None:
    body = b"a" * (MAX_SHOWN_BYTES - 1) + "é".encode() + b"b"
    assert "a\nNOT SHOWN: the last 2 bytes" in _shown(body)


def test_what_is_no_request_is_not_shown() -> None:
    with pytest.raises(BadRequest):
        display(b"{}")
    assert len(display_sha256(request_bytes(Request.bytes("GET", "/")))) == 32
