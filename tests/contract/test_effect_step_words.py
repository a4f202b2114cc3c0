"""What people read of an effect in a run: that it waits, under which policy, and which command is next."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from agent_run_ledger import EffectPending, Refused
from agent_run_ledger.cli.main import main
from agent_run_ledger.targets import http
from tests.contract.effect_run_kit import APPROVER, REVOKER, desk
from tests.contract.engine_kit import each_engine, only_a_file
from tests.contract.target_servers import says

pytestmark = each_engine

hang_up = says(b"")


@pytest.mark.parametrize("sent", [False, True])
@only_a_file
def test_a_call_that_waits_is_shown_as_waiting_with_the_policy_that_it_waits_for(
    sent: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(hang_up) as at:
        at.program().outcome()
        if sent:
            at.grant()
            at.program().outcome()
        shown: list[Any] = []
        for trust in (at.trust, at.path.with_name("none.json")):
            monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(trust))
            assert main(["runs", "show", "--db", str(at.path), "ticket-17"]) == 0
            shown.append(capsys.readouterr().out)
            assert main(["runs", "show", "--json", "--db", str(at.path), "ticket-17"]) == 0
            shown.append(json.loads(capsys.readouterr().out))
        known, told, unknown, untold = shown
        digest = at.last().policy_sha256.hex()
        assert "waits" in known
        assert "by policy finance" in known
        assert f"by policy {digest[:12]}" in unknown
        assert [call["state"] for call in told["calls"] if call["step"] == "refund"] == ["waits"]
        assert [(one["policy"], one["policy_sha256"]) for one in told["effects"]] == [("finance", digest)]
        assert [(one["policy"], one["policy_sha256"]) for one in untold["effects"]] == [("", digest)]


@only_a_file
def test_what_a_waiting_call_says_to_do_names_the_store() -> None:
    with desk(hang_up) as at:
        for code in ("approvals show", "effects show"):
            with pytest.raises(EffectPending) as caught:
                at.program().run()
            command = f"`arl {code} {at.last().action_id.hex()} --db {shlex.quote(str(at.path))}`"
            assert command in caught.value.hint
            if code == "approvals show":
                at.grant()
        with pytest.raises(Refused, match=f"refund:17 --db {at.path}") as drift:
            at.program("another").run(17, 1)
        assert drift.value.code == "argument_drift"


@only_a_file
def test_what_leads_on_after_a_no_names_the_action_and_the_store() -> None:
    with desk(hang_up) as at:
        at.program().outcome()
        command = f"`arl actions successor {at.last().action_id.hex()} --db {shlex.quote(str(at.path))}`"
        with at.people() as effects:
            effects.reject(APPROVER, at.last().action_id)
        with pytest.raises(Refused) as caught:
            at.program().run()
        assert (caught.value.code, command in caught.value.hint) == ("rejected", True)


@pytest.mark.parametrize("code", ["other_policy", "unknown_policy", "other_terms"])
def test_the_command_that_is_told_under_other_terms_asks_for_what_the_program_wants(
    code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk() as at:
        monkeypatch.setenv("AGENT_RUN_LEDGER_TRUST", str(at.trust))
        at.program("another").outcome()
        wants: dict[str, Any] = {"approval": "two"}
        if code == "unknown_policy":
            with at.people() as effects:
                assert effects.trust is not None
                left = tuple(one for one in effects.trust.trust.policies if one.name == "two")
            at.follow(policies=left)
        if code == "other_terms":
            wants = {"target": http(at.server.url, idempotency_header="Idempotency-Key")}
        with pytest.raises((EffectPending, Refused)) as caught:
            at.program(**wants).run()
        assert caught.value.code == code
        with at.people() as effects:
            effects.revoke(REVOKER, at.last().action_id)
        command = re.findall(r"`arl (actions successor .*?)`", caught.value.hint)
        assert main([*shlex.split(command[-1]), "--as", "agent"]) == 0, capsys.readouterr().err
        for approver in ("bob", "dan")[: at.last().approvals_needed]:
            at.grant(approver=approver)
        assert (at.program(**wants).outcome(), at.sent) == ("done", 1)
