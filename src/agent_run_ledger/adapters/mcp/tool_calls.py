"""One call of a tool: which one it is, what is on record of it, and what the client gets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, cast

from agent_run_ledger.adapters.effects import GivenEffects
from agent_run_ledger.adapters.gate import Answer, CallWaits, Gate, Permission, ToolRequest, allow_all
from agent_run_ledger.adapters.mcp import answers
from agent_run_ledger.adapters.mcp.call_numbers import CALL_ID, CallNumbers, call_digest, part_of
from agent_run_ledger.adapters.mcp.listing import Listing
from agent_run_ledger.adapters.mcp.messages import (
    INVALID_PARAMS,
    MODERN,
    Message,
    encode,
    failure,
    members,
    response,
)
from agent_run_ledger.adapters.mcp.policy import Policy, step_name, tool_name
from agent_run_ledger.adapters.mcp.recorded_run import Place, RecordedRun
from agent_run_ledger.adapters.mcp.wire import Dropped, NotSent, Sending, ServerError, Wire
from agent_run_ledger.adapters.recorder import Recorder
from agent_run_ledger.adapters.tool_target import NotDone
from agent_run_ledger.errors import (
    EffectPending,
    LedgerError,
    Misuse,
    Pending,
    StepTimeout,
    Unavailable,
    Unstorable,
    Vetoed,
)
from agent_run_ledger.ledger.run_ledger import RunLedger

LIST_TIMEOUT_S = 10.0
MAX_PAGES = 50
AT_ONCE_S = 0.1
"""Seconds within which equal calls that wait are calls made at once, and not one that is made again."""
_PROTOCOL = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class Recorders:
    """The recorders of one attempt: by the policy, for tools whose server's word that they are safe counts, and for
    looking up what became of a call, where no gate is asked.
    """

    by_policy: Recorder
    safe: Recorder
    lookup: Recorder


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request for a call. `call`: how the run knows it; `number` and `equal`: where the client gave no id.

    `lost`: what happened to it after it was sent; `as_answered`: the server's answer is what the client gets.
    """

    sending: Sending
    tool: str
    arguments: dict[str, Any]
    meta: dict[str, Any]
    client_id: str
    part: str
    equal: str
    number: int = 0
    call: str = ""
    safe: bool = False
    lost: str = ""
    as_answered: bool = False
    nudges: list[str] = field(default_factory=list[str])


class Lost(Exception):
    """A call was sent, and nobody will learn from its answer what became of it."""


class ToolCalls:
    """Guarantees: a call that is on record is answered without the server; any other is sent at most once per start on
    record. Nothing is sent in a run that is stopped. Every call that was not cancelled gets exactly one answer.
    """

    def __init__(
        self, ledger: RunLedger, run_id: str, *, wire: Wire, listing: Listing, policy: Policy, gate: Gate, wait_s: float
    ) -> None:
        self._wire = wire
        self._listing = listing
        self._policy = policy
        self._gate = gate
        self._db_path = ledger.db_path
        self.run: RecordedRun[Recorders] = RecordedRun(ledger, run_id, wait_s=wait_s, make=self._recorders)
        self._numbers = CallNumbers()
        self._unknown: dict[str, dict[str, Any]] = {}
        self._ids: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._against: dict[str, Answer] = {}

    async def answer(self, message: Message, sending: Sending) -> Message | bytes | None:
        """Return the answer to a tools/call: a message, or the server's own line; None where nobody waits for it."""
        try:
            asked = _asked(message, sending)
        except Misuse as error:
            return failure(message["id"], INVALID_PARAMS, error.message)
        made = await self._made(asked)
        if sending.cancelled:
            return None
        if isinstance(made, ServerError):
            words = "\n\n".join([made.words, *asked.nudges])
            return failure(message["id"], made.code, words, made.detail)
        if asked.as_answered and sending.line is not None and not asked.nudges:
            return sending.line
        for nudge in asked.nudges:
            made = answers.with_text(made, nudge)
        if MODERN in asked.meta and "resultType" not in made:
            made = {**made, "resultType": "complete"}
        return response(message["id"], made)

    async def _made(self, asked: Asked) -> dict[str, Any] | ServerError:
        """Make a call: one at a time of those that are the same by the client's id."""
        if not asked.client_id:
            known = self._unknown.get(asked.equal + asked.part)
            if known is not None:
                return known
            asked.number = self._numbers.take(asked.equal + asked.part)
            asked.call = f"equal:{asked.part}:{asked.equal}:{asked.number}"
            return await self._in_run(asked)
        asked.call = f"id:{asked.part}:{asked.client_id}"
        async with self._locks.setdefault(asked.client_id, asyncio.Lock()):
            return await self._in_run(asked)

    async def _wait_for_equals(self, asked: Asked) -> None:
        """Hold the answer to a call that waits back, so that equal calls sent with it are calls of their own.

        After the answer an equal call is this one, made again; before it, it is another one that came at once.
        """
        if not asked.client_id:
            await asyncio.sleep(AT_ONCE_S)

    async def _in_run(self, asked: Asked) -> dict[str, Any] | ServerError:
        try:
            place = await self.run.begin()
        except LedgerError as error:
            self._keep(asked)
            return self._stopped(error)
        ended: BaseException | None = None
        try:
            return await asyncio.create_task(self._call(place, asked), context=place.context.copy())
        except ServerError as error:
            return error
        except LedgerError as error:
            ended = error
            if isinstance(error, Pending):
                await self._wait_for_equals(asked)
            return self._refused(asked, error)
        except Exception as error:  # what a person resolved the call with, or what is left of an error
            return answers.error_result(f"{type(error).__name__}: {error}", run=self.run.run_id)
        finally:
            self.run.end(ended)

    async def _call(self, place: Place[Recorders], asked: Asked) -> dict[str, Any]:
        if asked.client_id and not self._is_same_call(place, asked):
            return answers.error_result(
                f"[agent-run-ledger] The call id {asked.client_id!r} was used in this run for another tool, or "
                "with other arguments. Nothing was called. A new call needs a new id.",
                code="call_id_reused",
                run=self.run.run_id,
            )
        if asked.call in self._unknown:
            return self._unknown[asked.call]
        asked.safe = await self._is_safe(place, asked)
        recorder = place.within.safe if asked.safe else place.within.by_policy
        name = step_name(asked.tool)
        is_effect = recorder.is_effect(name)
        if is_effect:
            self._check_effect(asked)
        try:
            value = await recorder.atool(
                name,
                asked.arguments,
                lambda: self._send(asked),
                call_id=asked.call,
                make_with=lambda approved: self._send_approved(asked, approved),
            )
        except Dropped as dropped:
            asked.lost = str(dropped)
            if asked.safe:
                self._keep(asked)
                return answers.error_result(
                    f"[agent-run-ledger] {asked.tool} gave no answer: {dropped}. It may be called again.",
                    outcome="none",
                    run=self.run.run_id,
                )
            value = await place.within.lookup.atool(name, asked.arguments, _never, call_id=asked.call)
        except Exception:
            self._take_nudge(place, asked)
            raise
        self._take_nudge(place, asked)
        if answers.is_unknown(value):
            made = answers.unknown({**value, "tool": asked.tool}, asked.lost, run_id=self.run.run_id)
            self._unknown[self._known_by(asked)] = made
            return made
        asked.as_answered = asked.sending.line is not None and not is_effect
        return answers.as_result(value)

    async def _send(self, asked: Asked) -> dict[str, Any]:
        """Ask the server: the body of the step."""
        timeout_s = self._policy.of(asked.tool).timeout_s
        try:
            return await self._wire.ask(asked.sending, timeout_s=timeout_s)
        except TimeoutError:
            why = f"gave no answer within {timeout_s:g} s"
            if not asked.safe:
                raise Dropped(f"the server {why}") from None
            raise StepTimeout(f"tool {asked.tool!r} {why}: timeout", hint="it may be called again") from None

    def _check_effect(self, asked: Asked) -> None:
        """Refuse a call that asks for more than people would see; NotSent where the server is not there any more."""
        if asked.part:
            raise Vetoed(
                f"the call of {asked.tool!r} needs approval, and cannot be one of several messages or a task",
                code="not_one_message",
            )
        self._wire.check_open(asked.sending)

    async def _send_approved(self, asked: Asked, approved: dict[str, Any]) -> dict[str, Any]:
        """Ask the server for exactly what people approved. NotDone where its answer does not say that it did it."""
        meta = {key: value for key, value in asked.meta.items() if key.startswith(_PROTOCOL) or key == "progressToken"}
        params: dict[str, Any] = {"name": asked.tool, "arguments": approved, **({"_meta": meta} if meta else {})}
        request = {"jsonrpc": "2.0", "id": asked.sending.message_id, "method": "tools/call", "params": params}
        asked.sending.request = encode(request)[:-1]
        try:
            result = await self._send(asked)
        except Dropped as dropped:
            asked.lost = str(dropped)
            raise Lost(asked.lost) from None
        except ServerError as error:
            asked.lost = f"the server answered: {error}"
            raise NotDone({"code": error.code, "message": error.words, "data": error.detail}) from error
        whole = isinstance(asked.sending.answer.result().get("result"), dict)  # what is none says nothing either
        if not whole or answers.says_error(result) or result.get("resultType", "complete") != "complete":
            asked.lost = "the server's answer does not say that it did it"
            raise NotDone(result)
        return result

    def _take_nudge(self, place: Place[Recorders], asked: Asked) -> None:
        nudge = place.run.nudge()
        if nudge is not None:
            asked.nudges.append(nudge)

    def _is_same_call(self, place: Place[Recorders], asked: Asked) -> bool:
        """Return whether this id stands for a call of this tool with these arguments in the whole run."""
        known = self._ids.get(asked.client_id)
        if known is None:
            name = f"mcp.call-id.{sha256(asked.client_id.encode('utf-8', 'surrogatepass')).hexdigest()}"
            known = self._ids[asked.client_id] = str(place.run.value(name, lambda: asked.equal))
        return known == asked.equal

    async def _is_safe(self, place: Place[Recorders], asked: Asked) -> bool:
        said = self._policy.of(asked.tool)
        if said.effect is not None:
            return False
        if said.rules.safe or not said.trust_hints:
            return said.rules.safe
        if not self._listing.knows(asked.tool):
            await self._list(asked)
        if self._listing.knows(asked.tool):
            self._listing.record(place.run.value)
        return self._listing.says_safe(asked.tool)

    async def _list(self, asked: Asked) -> None:
        """Ask the server for its tools, where the client has not."""
        params: dict[str, Any] = {}
        meta = {key: value for key, value in asked.meta.items() if key.startswith(_PROTOCOL)}
        if meta:
            params["_meta"] = meta
        try:
            for _ in range(MAX_PAGES):
                page = await self._wire.ask_own("tools/list", params, timeout_s=LIST_TIMEOUT_S)
                if self._listing.page(params.get("cursor"), page):
                    return
                params["cursor"] = page["nextCursor"]
        except (ServerError, TimeoutError, NotSent, Dropped):
            return  # then there is no hint to trust

    def _recorders(self) -> Recorders:
        return Recorders(
            self._recorder(gate=self._asked_gate, effects=self._policy.effects),
            self._recorder(gate=self._asked_gate, safe=True),
            self._recorder(),
        )

    def _recorder(self, *, gate: Gate = allow_all, safe: bool = False, effects: GivenEffects | None = None) -> Recorder:
        rules = self._policy.rules(safe=safe)
        return Recorder(tools=rules, effects=effects, gate=gate, outcome=answers.outcome_of, called=tool_name)

    def _asked_gate(self, request: ToolRequest) -> Answer:
        """Ask the gate, and keep what it says against the call for the answer to the client."""
        answer = self._gate(request)
        if answer.permission is not Permission.ALLOWED:
            self._against[request.call_id] = answer
        return answer

    def _refused(self, asked: Asked, error: LedgerError) -> dict[str, Any]:
        """Return the result that stands for an error of ours, after noting whether the call may be made again."""
        run_id = self.run.run_id
        against = self._against.pop(asked.call, None)
        approval = "" if against is None else against.approval_id
        if isinstance(error, EffectPending):
            self._keep(asked)
            return answers.waits(error, asked.lost, run_id=run_id)
        if isinstance(error, Pending) and not isinstance(error, CallWaits):
            self._keep(asked)
            words = f"[agent-run-ledger] This call waits: {error}. Make the same call again later."
            return answers.error_result(words, state="held_up", code=error.code, run=run_id)
        if isinstance(error, Pending):
            self._keep(asked)
            words = (
                f"[agent-run-ledger] This call was not made yet: {error}. Make the same call again after the decision."
            )
            return answers.error_result(words, state="pending", approval_id=approval, run=run_id)
        if isinstance(error, Vetoed) and error.code != Vetoed.code:
            return answers.refused(error, run_id=run_id)
        if isinstance(error, Vetoed):
            return answers.error_result(
                f"[agent-run-ledger] {error}. Nothing was called.", state="denied", approval_id=approval, run=run_id
            )
        if isinstance(error, StepTimeout):
            return answers.error_result(f"[agent-run-ledger] {error}.", code=error.code, run=run_id)
        if isinstance(error, Unavailable):
            if not isinstance(error, NotSent):
                self._keep(asked)
            return answers.error_result(f"[agent-run-ledger] {error}.", code=error.code, run=run_id)
        if isinstance(error, Misuse):
            return self._not_storable(asked, error)
        return self._stopped(error)

    def _not_storable(self, asked: Asked, error: Misuse) -> dict[str, Any]:
        """Return the result for a call that has no stored form, or whose result has none: that is not called again."""
        run_id = self.run.run_id
        if not asked.sending.sent:
            self._keep(asked)
            is_told = isinstance(error, Unstorable) or asked.tool not in self._policy.effects
            why = ", as it cannot be recorded" if is_told else ""
            words = f"[agent-run-ledger] This call was not made now{why}: {error}."
            return answers.error_result(words, code=error.code, run=run_id)
        words = f"[agent-run-ledger] This call was made. Its result could not be recorded: {error}. Do not repeat it."
        made = answers.error_result(words, code=error.code, run=run_id)
        if not asked.safe:
            self._unknown[self._known_by(asked)] = made
        return made

    def _known_by(self, asked: Asked) -> str:
        """Return what a call is remembered by that is not to be sent again in this session."""
        return asked.call if asked.client_id else asked.equal + asked.part

    def _stopped(self, error: LedgerError) -> dict[str, Any]:
        return answers.stopped(error, run_id=self.run.run_id, db_path=self._db_path)

    def _keep(self, asked: Asked) -> None:
        if not asked.client_id:
            self._numbers.keep(asked.equal + asked.part, asked.number)


def _asked(message: Message, sending: Sending) -> Asked:
    """Return what a tools/call asks for. Misuse for one that no server should take either."""
    params = members(message.get("params"))
    tool, arguments = params.get("name"), params.get("arguments")
    if not isinstance(tool, str):
        raise Misuse("params.name must be the name of a tool", code="bad_call")
    if arguments is not None and not isinstance(arguments, dict):
        raise Misuse("params.arguments must be an object", code="bad_call")
    step_name(tool)
    meta = members(params.get("_meta"))
    client_id = meta.get(CALL_ID, "")
    if not isinstance(client_id, str) or (CALL_ID in meta and not client_id):
        raise Misuse(f"{CALL_ID} in params._meta must be a text that is not empty", code="bad_call")
    given: dict[str, Any] = members(cast("object", arguments))
    return Asked(
        sending=sending,
        tool=tool,
        arguments=given,
        meta=meta,
        client_id=client_id,
        part=part_of(params),
        equal=call_digest(tool, given),
    )


async def _never() -> Any:
    raise NotSent("a call that was sent before is not sent again")
