"""A glimpse of a call: everything that the loop rule will ever need of it, small and without readable text."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

from agent_run_ledger.errors import Misuse
from agent_run_ledger.kernel.loops import normalise, signs
from agent_run_ledger.kernel.loops.similarity import SKETCH, features, sketch

VERSION: Final = 1

FAILED: Final = 1
VETOED: Final = 2
TRANSIENT: Final = 4
POLL: Final = 8
WAIT: Final = 16
DONE: Final = 32
SILENT: Final = 64
SMALL: Final = 128

_HEAD: Final = struct.Struct(">BBIQQQQIB")
_FEATURES: Final = 128
_DIGITS: Final = re.compile(r"\d\d*")  # found sooner than by \d+


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One finished call as the loop rule sees it.

    `arguments` by parameter name and `outcome` are JSON-like values or texts; `error` is None when the call returned,
    else "TypeName: message". `vetoed`: somebody refused it. `poll` and `volatile` are the rules of its tool: it is
    meant to be called again and again; keys, or dotted paths, of arguments and results whose values are ignored.
    """

    tool: str
    arguments: object
    outcome: object = None
    error: str | None = None
    vetoed: bool = False
    poll: bool = False
    volatile: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """What is kept of a call: digests, 3-gram counts, word-pair hashes and flags; at most 231 bytes packed.

    `tool`: CRC-32 of the name. `given`: digest of the arguments; `form`: the same with every number masked; `features`:
    their 3-gram counts. `came`: digest of the outcome without times; `bare`: the same without generated names and line
    numbers; `numbers`: CRC-32 of the numbers left in it; `pairs`: its word pairs. `flags`: what its words say.
    """

    flags: int
    tool: int
    given: int
    form: int
    came: int
    bare: int
    numbers: int
    features: bytes
    pairs: tuple[int, ...]

    def pack(self) -> bytes:
        """Return the glimpse as bytes, a version first; `unpack` gives an equal one back."""
        head = _HEAD.pack(
            VERSION,
            self.flags,
            self.tool,
            self.given,
            self.form,
            self.came,
            self.bare,
            self.numbers,
            len(self.pairs),
        )
        return head + self.features + struct.pack(f">{len(self.pairs)}I", *self.pairs)

    @classmethod
    def unpack(cls, packed: bytes) -> Glimpse:
        """Return the glimpse that `pack` wrote. Misuse("bad_glimpse") for bytes of another version or length."""
        if not packed or packed[0] != VERSION:
            raise Misuse("these bytes are no glimpse of a version that is known", code="bad_glimpse")
        fixed = _HEAD.size + _FEATURES
        if len(packed) < fixed or (count := packed[_HEAD.size - 1]) > SKETCH or len(packed) != fixed + 4 * count:
            raise Misuse(f"a glimpse does not have {len(packed)} bytes", code="bad_glimpse")
        _, flags, tool, given, form, came, bare, numbers, _ = _HEAD.unpack_from(packed)
        return cls(
            flags=flags,
            tool=tool,
            given=given,
            form=form,
            came=came,
            bare=bare,
            numbers=numbers,
            features=packed[_HEAD.size : fixed],
            pairs=struct.unpack_from(f">{count}I", packed, fixed),
        )


def glimpse_of(call: Call) -> Glimpse:
    """Return the glimpse of a call: the same one in every process, from bounded parts of texts of any length.

    Texts over 2,304 characters are clipped to a head of 1,536 and a tail of 768; what lies between counts by digest
    only. The 3-grams of the arguments come from their first 512 and last 256 bytes.
    """
    given = normalise.arguments_text(call.arguments, call.volatile)
    said = call.error if call.error is not None else normalise.outcome_text(call.outcome, call.volatile)
    came = normalise.timeless(normalise.clipped(said))
    if call.error is not None:
        came = normalise.unquoted(came, given)
    line = normalise.squeezed(came)
    bare = normalise.nameless(came)
    form = normalise.uncounted(given)
    digest = normalise.digest
    asked, heard = digest(given), digest(line)
    return Glimpse(
        flags=_flags(call, given, line),
        tool=_crc(call.tool),
        given=asked,
        form=asked if form == given else digest(form),
        came=heard,
        bare=heard if bare == came else digest(normalise.squeezed(bare)),
        numbers=crc32(" ".join(sorted(_DIGITS.findall(bare))).encode()),
        features=features(given),
        pairs=sketch(bare),
    )


def _flags(call: Call, given: str, line: str) -> int:
    flags = 0
    if call.error is not None:
        flags |= FAILED | (TRANSIENT if signs.is_transient(line) else 0)
    elif signs.is_wrong(line):
        flags |= FAILED
    elif call.outcome is None or signs.is_done(line):
        flags |= DONE
    elif not line:
        flags |= SILENT
    elif signs.is_small(line):
        flags |= SMALL
    if call.vetoed:
        flags |= VETOED
    if call.poll:
        flags |= POLL
    if signs.is_wait(call.tool, given, "" if flags & FAILED else line):
        flags |= WAIT
    return flags


@lru_cache(maxsize=1024)
def _crc(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))
