"""Numbers that JSON cannot say exactly: wide integers, NaN and infinities, -0.0, complex, Decimal, Fraction."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

from agent_run_ledger.codecs.forms import Body, Damaged, Form, Parts, array, text

if TYPE_CHECKING:
    from agent_run_ledger.codecs.tagging import Writer
    from agent_run_ledger.codecs.untagging import Reader

_FLOATS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0.0": -0.0}


def _write_int(value: int, put: Writer) -> Body:
    # Hexadecimal, because decimal is quadratic and Python refuses it beyond 4,300 digits.
    return {"v": hex(value)}


def _read_int(body: Body, take: Reader) -> int:
    digits = text(body)
    value = int(digits, 16)
    if hex(value) != digits:
        raise Damaged("no hexadecimal integer")
    return value


def _write_float(value: float, put: Writer) -> Body:
    if not math.isfinite(value):
        put.note_non_finite(value)
    return {"v": repr(value)}


def _read_float(body: Body, take: Reader) -> float:
    return _FLOATS[text(body)]


def _write_complex(value: complex, put: Writer) -> Body:
    return {"v": put.items([value.real, value.imag])}


def _read_complex(body: Body, take: Reader) -> complex:
    parts = take.items(array(body))
    if [type(part) for part in parts] != [float, float]:
        raise Damaged("a complex number has two floats")
    real, imaginary = cast("list[float]", parts)
    return complex(real, imaginary)


def _complex_parts(value: complex) -> Parts:
    return (".real", value.real), (".imag", value.imag)


def _write_decimal(value: Decimal, put: Writer) -> Body:
    if not value.is_finite():
        put.note_non_finite(value)
    return {"v": str(value)}


def _read_decimal(body: Body, take: Reader) -> Decimal:
    digits = text(body)
    value = Decimal(digits)
    if str(value) != digits:
        raise Damaged("no decimal number")
    return value


def _decimal_parts(value: Decimal) -> Parts:
    sign, digits, exponent = value.as_tuple()
    return (".sign", sign), (".digits", bytes(digits)), (".exponent", exponent)


def _write_fraction(value: Fraction, put: Writer) -> Body:
    return {"v": put.items([value.numerator, value.denominator])}


def _read_fraction(body: Body, take: Reader) -> Fraction:
    parts = take.items(array(body))
    if [type(part) for part in parts] != [int, int]:
        raise Damaged("a fraction has two integers")
    numerator, denominator = cast("list[int]", parts)
    return Fraction(numerator, denominator)


def _fraction_parts(value: Fraction) -> Parts:
    return (".numerator", value.numerator), (".denominator", value.denominator)


def _no_parts(value: object) -> Parts:
    return ()


EXACT: Final[dict[type, Form]] = {
    int: Form(tag="int", write=_write_int, read=_read_int, parts=_no_parts),
    float: Form(tag="float", write=_write_float, read=_read_float, parts=_no_parts),
    complex: Form(tag="complex", write=_write_complex, read=_read_complex, parts=_complex_parts),
    Decimal: Form(tag="decimal", write=_write_decimal, read=_read_decimal, parts=_decimal_parts),
    Fraction: Form(tag="fraction", write=_write_fraction, read=_read_fraction, parts=_fraction_parts),
}
"""int and float stand here for the values outside JSON's exact range; equality compares both as leaves."""
