"""The cases of public reports that are about approvals and doubles, replayed through the effect ledger: no model, no
framework; what a case calls a tool's body is here the request that is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import pytest

from agent_run_ledger import Refused
from agent_run_ledger.effects import DoubtBy, Role, TargetClass
from agent_run_ledger.ledger.effect_ledger import ActionView, Dispatch, Pending
from tests.contract.effect_kit import ANN, EXE, A, E, Kit, actor, effects


@pytest.fixture
def kit() -> Iterator[Kit]:
    with effects() as one:
        yield one


BOSS = actor("ann", Role.REQUESTER, Role.APPROVER)
"""Who asked, and might approve for others."""


def proposed(kit: Kit, key: str, request: bytes) -> ActionView:
    """An action under a key that sends these bytes."""
    return kit.ledger.propose(ANN, key, kit.intent(TargetClass.I, request=request))


def sent(kit: Kit, view: ActionView) -> Dispatch:
    """What a worker of an approved action may send, and was handed."""
    grant = kit.ledger.claim(EXE, view.action_id, worker="w1", request_sha256=view.request_sha256)
    kit.ledger.prepare(EXE, view.action_id, claim_id=grant.claim_id, worker="w1")
    return kit.ledger.hand_out(EXE, view.action_id, claim_id=grant.claim_id, worker="w1")


def not_sent(kit: Kit, view: ActionView) -> str:
    """Try to claim what may not be: the code of its refusal. Nothing changed."""
    return kit.refused(lambda: sent(kit, view)).code


def handed(kit: Kit) -> list[bytes]:
    """The bytes of all requests that were ever handed out, over all keys."""
    reader = kit.ledger._store.reader().effects
    keys = list(reader.keys())
    rows = [row.action for key in keys for row in reader.members(key)]
    return [kit.ledger.request(row.action_id) for row in rows if row.handed_out]


def test_app_01_a_rejected_call_is_sent_by_nobody_whichever_way_leads_there(kit: Kit) -> None:
    view = proposed(kit, "call-1", b"delete_rows")
    approval = kit.approval(view)
    kit.do(E.REJECT, view)
    assert not_sent(kit, view) == "rejected"  # another middleware goes straight to the tool
    assert kit.refused(lambda: kit.do(E.APPROVE, view, approval=approval)).code == "rejected"
    again = proposed(kit, "call-1", b"delete_rows")  # the message with the call is still there
    assert (again.action_id, again.state) == (view.action_id, A.REJECTED)
    kit.reopen()
    assert not_sent(kit, view) == "rejected"
    assert handed(kit) == []


def test_app_05_a_history_that_ends_in_an_unapproved_call_grants_nothing_when_it_is_resumed(kit: Kit) -> None:
    view = proposed(kit, "call-1", b"wire")
    kit.reopen()
    resumed = proposed(kit, "call-1", b"wire")
    assert (resumed.action_id, resumed.state, resumed.authorized) == (view.action_id, A.PROPOSED, False)
    waits = kit.refused(lambda: sent(kit, resumed))
    assert (type(waits), waits.code) == (Pending, "proposed")
    assert handed(kit) == []


def test_app_06_after_an_edit_the_original_is_superseded_and_its_bytes_need_a_new_approval(kit: Kit) -> None:
    original = proposed(kit, "pay-1", b'{"amount":1000}')
    old_approval = kit.approval(original)
    edited = kit.do(E.EDIT, original, intent=kit.intent(TargetClass.I, request=b'{"amount":100}'))
    kit.do(E.APPROVE, edited)
    assert sent(kit, edited).request == b'{"amount":100}'
    assert kit.look(original).state is A.SUPERSEDED
    assert not_sent(kit, original) == "superseded"
    retry = kit.refused(lambda: proposed(kit, "pay-1", b'{"amount":1000}'))
    assert (type(retry), retry.code) == (Refused, "key_taken")
    other = proposed(kit, "pay-2", b'{"amount":1000}')
    assert kit.refused(lambda: kit.do(E.APPROVE, other, approval=old_approval)).code == "other_action"
    assert not_sent(kit, other) == "proposed"
    assert handed(kit) == [b'{"amount":100}']


def test_app_07_a_rejected_call_takes_no_sibling_with_it(kit: Kit) -> None:
    free, wire = proposed(kit, "call-1", b"calc"), proposed(kit, "call-2", b"wire")
    kit.do(E.APPROVE, free)
    kit.do(E.REJECT, wire)
    assert kit.do(E.OUTCOME, sent(kit, free).view).state is A.SUCCEEDED
    assert kit.look(wire).state is A.REJECTED
    assert (kit.look(free).closed, kit.look(wire).closed) == (True, True)  # both calls have a result
    assert handed(kit) == [b"calc"]


def test_app_08_the_same_bytes_of_two_calls_are_two_actions_with_approvals_of_their_own(kit: Kit) -> None:
    views = [proposed(kit, f"order:{call}", sku) for call, sku in (("c1", b"a"), ("c2", b"b"), ("c3", b"a"))]
    assert len({view.action_id for view in views}) == 3
    approval = kit.approval(views[0])
    kit.do(E.APPROVE, views[0], approval=approval)
    assert kit.refused(lambda: kit.do(E.APPROVE, views[2], approval=approval)).code == "other_action"
    assert not_sent(kit, views[2]) == "proposed"
    for view in views[1:]:
        kit.do(E.APPROVE, view)
    assert [sent(kit, view).request for view in views] == [b"a", b"b", b"a"]
    assert proposed(kit, "order:c1", b"a").action_id == views[0].action_id  # the same call is the same action


def test_app_09_what_a_sub_agent_wants_waits_for_people_and_is_listed(kit: Kit) -> None:
    key = "run:parent/run:sub-agent/sql-1"
    view = proposed(kit, key, b"DELETE FROM t")
    assert not_sent(kit, view) == "proposed"
    assert (
        kit.refused(lambda: kit.do(E.APPROVE, view, actor=BOSS, approval=kit.approval(view, "ann"))).code
        == "approver_is_requester"
    )
    assert [one.action_key for one in kit.ledger.inbox(A.PROPOSED)] == [key]  # it names both runs
    assert kit.look(view).state is A.PROPOSED
    assert handed(kit) == []


def test_dup_01_a_pause_for_one_call_repeats_no_sibling(kit: Kit) -> None:
    mail, ask = proposed(kit, "p1", b"send_email"), proposed(kit, "p2", b"ask_human")
    kit.do(E.APPROVE, mail)
    kit.do(E.OUTCOME, sent(kit, mail).view)
    kit.reopen()  # the run is suspended for p2, granted and resumed
    kit.do(E.APPROVE, ask)
    assert proposed(kit, "p1", b"send_email").state is A.SUCCEEDED
    assert not_sent(kit, mail) == "succeeded"
    kit.do(E.OUTCOME, sent(kit, ask).view)
    assert sorted(handed(kit)) == [b"ask_human", b"send_email"]


def test_dup_04_a_connection_lost_in_the_middle_of_a_call_leaves_a_doubt_and_no_second_call(kit: Kit) -> None:
    """What only reads is no effect, and may be asked again."""
    order = proposed(kit, "place_order:1", b"order")
    kit.do(E.APPROVE, order)
    view = sent(kit, order).view
    assert kit.do(E.DOUBT, view, actor=EXE, by=DoubtBy.WORKER, worker="w1").state is A.UNRESOLVED
    kit.reopen()
    assert proposed(kit, "place_order:1", b"order").state is A.UNRESOLVED
    assert not_sent(kit, order) == "unresolved"
    assert handed(kit) == [b"order"]


def test_dup_05_a_client_that_ran_out_of_time_polls_one_action_and_starts_no_second(kit: Kit) -> None:
    job = proposed(kit, "start_job:1", b"job")
    kit.do(E.APPROVE, job)
    view = sent(kit, job).view
    kit.do(E.DOUBT, view, actor=EXE, by=DoubtBy.WORKER, worker="w1")
    for _ in range(2):  # the client tries again
        polled = proposed(kit, "start_job:1", b"job")
        assert (polled.action_id, polled.state) == (job.action_id, A.UNRESOLVED)
        assert not_sent(kit, job) == "unresolved"
    late = kit.do(E.OUTCOME, view)  # the receipt of what was slow
    assert (late.action_id, late.state) == (job.action_id, A.SUCCEEDED)
    assert handed(kit) == [b"job"]


def test_dup_06_the_same_call_again_is_one_action_and_another_call_needs_its_own_approval(kit: Kit) -> None:
    first = proposed(kit, "create_site:call-1", b"order 7")
    kit.do(E.APPROVE, first)
    kit.do(E.OUTCOME, sent(kit, first).view)
    assert proposed(kit, "create_site:call-1", b"order 7").state is A.SUCCEEDED
    assert not_sent(kit, first) == "succeeded"
    other = proposed(kit, "create_site:call-2", b"order 7")
    assert (other.action_id == first.action_id, other.state) == (False, A.PROPOSED)
    assert not_sent(kit, other) == "proposed"
    assert handed(kit) == [b"order 7"]


def test_dup_08_a_key_with_other_arguments_is_an_error_and_with_the_same_the_first_result(kit: Kit) -> None:
    first = proposed(kit, "k1", b'{"wall":1}')
    kit.do(E.APPROVE, first)
    done = kit.do(E.OUTCOME, sent(kit, first).view)
    second = proposed(kit, "k1", b'{"wall":1}')
    assert (second.action_id, second.state, second.evidence) == (first.action_id, A.SUCCEEDED, done.evidence)
    assert second.request_sha256 == sha256(b'{"wall":1}').digest()
    third = kit.refused(lambda: proposed(kit, "k1", b'{"wall":2}'))
    assert (type(third), third.code) == (Refused, "key_taken")
    assert handed(kit) == [b'{"wall":1}']
