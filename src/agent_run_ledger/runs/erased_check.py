"""Checks that the erased records of a run were erased by decisions, before anybody relies on what they are not."""

from __future__ import annotations

from agent_run_ledger import codecs
from agent_run_ledger.errors import Tampered, Unavailable
from agent_run_ledger.kernel.erasure import ERASABLE, EVENTS, ErasedAccount, kept_digest, parse_erasure
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Store
from agent_run_ledger.runs.leaf_check import check_against_leaf

_SETTLE_TRIES = 50


def check_erasures(store: Store, run_row_id: int) -> None:
    """Raise Tampered unless decisions of the run, found in their leaves, name what is erased of it, as it stands.

    Reads the whole run. It is asked only where a call is found under no key although something of the run is erased:
    a record whose name was changed while its salt was taken away would be such a call. A run that a fork rests on can
    be erased meanwhile: it is read anew for as long as it has new decisions.
    """
    decided = _decisions(store, run_row_id)
    for _ in range(_SETTLE_TRIES):
        wrong, before = _contradiction(store, run_row_id), decided
        if not wrong:
            return
        decided = _decisions(store, run_row_id)
        if decided == before:
            raise Tampered(f"run {store.reader().get_run(run_row_id).run_id!r}: {wrong}", hint="run `arl verify`")
    raise Unavailable("a run is being erased that this one rests on", code="run_contended", hint="try again later")


def _decisions(store: Store, run_row_id: int) -> list[int]:
    return [stored.record_id for stored in store.reader().records(run_row_id, kinds=[RecordKind.DECISION])]


def _contradiction(store: Store, run_row_id: int) -> str:
    """Return the first way in which decisions and erased records contradict each other, "" where they agree."""
    account = ErasedAccount()
    for stored in store.reader().records(run_row_id, kinds=tuple(RecordKind)):
        record = stored.record
        if stored.erased and record.kind in ERASABLE:
            account.note("", stored.record_id, kept_digest(record))
        elif record.kind is RecordKind.DECISION and record.name in EVENTS:
            check_against_leaf(store, stored)
            said = parse_erasure(codecs.unpack(record.encoding, record.payload))
            wrong = ["an erasure does not say what it erased"] if said is None else account.settle("", said)
            if wrong:
                return wrong[0]
    return next((f"record {number} is erased, and no decision says so" for _, number in account.unexplained()), "")
