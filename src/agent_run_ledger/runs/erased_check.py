"""Checks that the erased records of a run were erased by decisions, before anybody relies on what they are not."""

from __future__ import annotations

from agent_run_ledger import codecs
from agent_run_ledger.errors import Tampered
from agent_run_ledger.kernel.erasure import ERASABLE, EVENTS, ErasedAccount, kept_digest, parse_erasure
from agent_run_ledger.kernel.record import RecordKind
from agent_run_ledger.ports import Store
from agent_run_ledger.runs.leaf_check import check_against_leaf


def check_erasures(store: Store, run_row_id: int) -> None:
    """Raise Tampered unless decisions of the run, found in their leaves, name what is erased of it, as it stands.

    Reads the whole run. It is asked only where a call is found under no key although something of the run is erased:
    a record whose name was changed while its salt was taken away would be such a call.
    """
    reader, account = store.reader(), ErasedAccount()
    for stored in reader.records(run_row_id, kinds=tuple(RecordKind)):
        record = stored.record
        if stored.erased and record.kind in ERASABLE:
            account.note("", stored.record_id, kept_digest(record))
        elif record.kind is RecordKind.DECISION and record.name in EVENTS:
            check_against_leaf(store, stored)
            said = parse_erasure(codecs.unpack(record.encoding, record.payload))
            wrong = ["an erasure does not say what it erased"] if said is None else account.settle("", said)
            if wrong:
                raise _contradiction(store, run_row_id, wrong[0])
    for _, record_id in account.unexplained():
        raise _contradiction(store, run_row_id, f"record {record_id} is erased, and no decision says so")


def _contradiction(store: Store, run_row_id: int, text: str) -> Tampered:
    return Tampered(f"run {store.reader().get_run(run_row_id).run_id!r}: {text}", hint="run `arl verify`")
