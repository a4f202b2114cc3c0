"""What the adapter kit drives: a small client with a recorded model, whose tools are behind the proxy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from agent_run_ledger import Pending
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.testing.adapter_effects import EFFECT_SCENARIOS
from agent_run_ledger.testing.adapter_job import TRUST_FILE
from agent_run_ledger.testing.adapter_kit import SCENARIOS, Job
from tests.adapters.mcp.sessions import HERE, Session, meta_of, text_of
from tests.adapters.offline import OFFLINE

RUN = "conformance-mcp"


class Client:
    """Its model is recorded in the kit's run, its tools by the proxy, in a run of the proxy's own."""

    adapter = "agent_run_ledger.adapters.mcp"
    framework: tuple[str, ...] = ()
    unsupported: ClassVar[Mapping[str, str]] = {
        name: "the proxy sees calls of tools alone" for name in SCENARIOS if name not in EFFECT_SCENARIOS
    }

    def run(self, job: Job) -> str:
        policy = job.folder / "policy.toml"
        policy.write_text(
            "".join(
                f'[tools.{name}]\neffect = {{ key = "{one.key}", approval = "{one.approval}" }}\n'
                for name, one in job.effects.items()
            )
        )
        command = [*OFFLINE, "-m", "agent_run_ledger", "proxy", "mcp", "--db", job.ledger.db_path, "--run", RUN]
        command += ["--trust", str(job.folder / TRUST_FILE), "--policy", str(policy), "--"]
        server = [*OFFLINE, str(HERE / "kit_server.py"), str(job.folder)]
        with (
            job.ledger.run(job.run_id),
            Session([*command, *server], {**os.environ, "KIT_CLIENT": str(os.getpid())}) as session,
        ):
            said = _talk(job, session)
            session.end()
            return said


def _talk(job: Job, session: Session) -> str:
    recorder, results = Recorder(), dict[str, str]()
    while True:
        turn = recorder.model("model", {"system": job.system, "told": dict(results)}, lambda: _asked(job, results))
        if not turn["calls"]:
            return str(turn["text"])
        for call in turn["calls"]:
            result = session.call(call["name"], call["arguments"], call_id=call["call_id"])
            if job.approves and meta_of(result).get("state") == "pending":  # a client that believes in itself
                result = session.call(call["name"], call["arguments"], call_id=call["call_id"])
            if meta_of(result).get("state") in ("pending", "in_doubt"):
                session.end()
                raise Pending(text_of(result))
            results[call["call_id"]] = text_of(result)


def _asked(job: Job, results: Mapping[str, str]) -> dict[str, Any]:
    turn = job.asked(results)
    calls = [{"name": c.name, "arguments": c.arguments, "call_id": c.call_id} for c in turn.calls]
    return {"text": turn.text, "calls": calls}
