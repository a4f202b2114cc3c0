"""The reference model: it follows a life through its program by the trace, and says what could not have happened."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.looking import REFUSED
from tests.simulation.memory import BEGUN, NEVER, NONE, Key, Memory, RunMemory, Scope, Status, begins, is_within
from tests.simulation.syntax import Child, Parallel, Program, StepSpec
from tests.simulation.trace import Event
from tests.simulation.walking import Arguments, Broken, Env, Place, Walker, body_name, drive

TOP = "top"
SURE_OF_NOTHING = frozenset({NONE})


class Complaint(AssertionError):
    """Something that the model does not allow."""


class Dead(BaseException):
    """The trace ends here: the process died."""


class Halted(Exception):
    """The ledger refused; its one argument is the code."""


@dataclass(slots=True)
class Frame:
    """A scope in one life: which run it is in, and how it numbers equal calls and groups of branches."""

    run: object
    scope: Scope = ()
    next: Counter[object] = field(default_factory=Counter)
    free: dict[object, list[int]] = field(default_factory=dict)
    groups: int = 0

    def number(self, equal: object) -> int:
        """The number of the next of these equal calls."""
        free = self.free.get(equal)
        if free:
            return free.pop(0)
        self.next[equal] += 1
        return self.next[equal] - 1

    def give_back(self, equal: object, number: int) -> None:
        """Nobody will ever conclude that call."""
        self.free[equal] = sorted((*self.free.get(equal, ()), number))

    def group(self) -> int:
        """The number of the next group of branches."""
        self.groups += 1
        return self.groups - 1


@dataclass(slots=True)
class _Seen:
    """What the trace has of one op."""

    path: str
    events: Sequence[Event]

    def all(self, what: str) -> list[Event]:
        return [event for event in self.events if event.what == what]

    def one(self, what: str) -> Event | None:
        found = self.all(what)
        if len(found) > 1 and what not in ("began", "failed", "item"):
            raise Complaint(f"{self.path}: {what} {len(found)} times in one life")
        return found[-1] if found else None

    def called(self) -> Event:
        event = self.one("call")
        if event is None:
            raise Dead
        return event


class Reference:
    """One life of a program. `follow` it, and `memory` is what the next life starts from."""

    swallowed = Halted

    def __init__(self, program: Program, memory: Memory, trace: Mapping[str, Sequence[Event]]) -> None:
        self.memory = memory
        self.restored = 0
        self.diverged = 0
        self.unknown = 0
        self._program = program
        self._trace = trace
        self._walker = Walker(program, self)
        self._consumed: dict[object, set[Key]] = {}
        self._halts: dict[object, tuple[str, int]] = {}
        self._modes: dict[object, set[bool]] = {}
        self._because: set[str] = set()
        self._owed: list[tuple[str, str]] = []
        self._last_begun = max((seen[0].at for seen in trace.values() if _began(seen)), default=-1)

    def follow(self, end: str | None) -> None:
        """Walk through the life, which said that it ended so; None for one that was killed. Raises Complaint."""
        top = Child(block=self._program.block, inputs=1, run_id=TOP)
        try:
            drive(self.child(Place("", Frame(None)), top, lambda at: self._walker.block(top.block, {}, at)))
            should: str | None = "completed"
        except Dead:
            should = None
        except Broken:
            should = "failed"
        except Halted as halted:
            should = str(halted)
        for path, code in self._owed:
            if code not in self._because:
                raise Complaint(f"{path}: refused with {code!r}, and nothing called for it")
        if end is not None and end != should:
            raise Complaint(f"the life ended with {end!r}, by the model with {should!r}")

    # -- what a program can say ---------------------------------------------------------------------------------

    async def call(self, at: Place, step: StepSpec, args: Arguments) -> str:
        """See walking.Machine."""
        return await self._asked(at, step, args, take=None)

    async def stream(self, at: Place, step: StepSpec, args: Arguments, take: int | None) -> str:
        """See walking.Machine."""
        return await self._asked(at, step, args, take=take)

    async def parallel(self, at: Place, op: Parallel, branches: list[Callable[[Place], Awaitable[None]]]) -> None:
        """Branch after branch: in the trace each stands by itself."""
        seen = self._seen(at)
        seen.called()
        outer: Frame = at.frame
        group: object = "wraps" if op.how == "wrap" else outer.group()
        errors: list[Exception] = []
        dead = False
        for number, branch in enumerate(branches):
            own = outer.number("wraps") if op.how == "wrap" else number
            inner = Frame(outer.run, (*outer.scope, ("branch", group, own)))
            try:
                await branch(Place(f"{at.path}.b{number}", inner))
            except Dead:
                dead = True
            except (Broken, Halted) as error:
                errors.append(error)
        self._joined(seen, errors, dead=dead)

    async def child(self, at: Place, op: Child, block: Callable[[Place], Awaitable[None]]) -> None:
        """See walking.Machine."""
        seen = self._seen(at)
        called = seen.called()
        outer: Frame = at.frame
        name: object = op.run_id
        if name is None:
            name = (outer.run, outer.scope, op.inputs, outer.number(("child", op.inputs)))
        run = self.memory.run(name)
        over = self._over(outer, name, run)
        if seen.one("entered") is None:
            if (refused := seen.one("refused")) is not None:
                new_in_old = over != {False} and "new" in run.states
                raise self._refused(at, outer.run, refused, {"run_completed"} if new_in_old else set())
            if seen.one("raised") is not None:
                raise Complaint(f"{at.path}: a run that was not entered raised")
            self._note_child(outer, name, run, called, None)
            raise Dead
        if over == {True} and run.states == {"new"}:
            raise Complaint(f"{at.path}: a new run was started within one that is over")
        self._note_child(outer, name, run, called, seen.one("entered"))
        self._modes[name] = over
        if over == {False}:
            run.states = {"open"}
        frame = Frame(name)
        failure: Exception | None = None
        try:
            await block(Place(at.path, frame))
        except (Broken, Halted) as error:
            failure = error
        self._left(seen, name, run, failure)

    async def value(self, at: Place, kind: str) -> str:
        """A value of the run's own: restored, or made and recorded."""
        seen = self._seen(at)
        called = seen.called()
        frame: Frame = at.frame
        key = Key(frame.scope, f"run.{kind}", (), frame.number(kind))
        run = self.memory.run(frame.run)
        statuses = run.statuses(key)
        self._consumed.setdefault(frame.run, set()).add(key)
        if (refused := seen.one("refused")) is not None:
            over = True in self._modes.get(frame.run, {False}) and NONE in statuses
            raise self._refused(at, frame.run, refused, {"run_completed"} if over else set())
        self._not_halted(at, frame.run, called)
        returned, ended = seen.one("returned"), seen.one("ended")
        made = seen.one("began") is not None
        if made and not any(status == NONE for status in statuses):
            raise Complaint(f"{at.path}: run.{kind} was made again")
        new = NONE in statuses
        if returned is None:
            may_be = Status("result", ended.text if ended is not None else None)
            if new:
                run.cells[key] = statuses | {may_be}
                run.begin(key, called.at, NEVER, sure=False)
            raise Dead
        texts = {status.text for status in statuses if status.kind == "result"}
        if not new and None not in texts and returned.text not in texts:
            raise Complaint(f"{at.path}: run.{kind} gave {returned.text}, recorded was {texts}")
        if kind == "value" and not made and not texts:
            raise Complaint(f"{at.path}: run.value was restored, and nothing was recorded")
        certain = not self._program.asynchronous or returned.at < self._last_begun
        if texts and returned.text in texts:
            self.restored += 1
        else:
            run.begin(key, called.at, returned.at, sure=certain and statuses == SURE_OF_NOTHING)
        run.cells[key] = frozenset(
            {Status("result", returned.text)} | (statuses & SURE_OF_NOTHING if not certain else set())
        )
        return returned.text

    # -- a call -------------------------------------------------------------------------------------------------

    async def _asked(self, at: Place, step: StepSpec, args: Arguments, *, take: int | None) -> str:
        """Find what happened to the call, whether that could be, and what is on record of it now."""
        seen, frame = self._seen(at), at.frame
        called = seen.called()
        run = self.memory.run(frame.run)
        equal = (step.name, args)
        if step.keyed:
            key = Key((*frame.scope, ("key", step.name, str(args[0]))), step.name, args, 0)
        else:
            key = Key(frame.scope, step.name, args, frame.number(equal))
        allowed = self._allowed(frame.run, run, key, step, take)
        self._consumed.setdefault(frame.run, set()).add(key)
        if seen.one("began") is None:
            text = self._without_body(at, run, key, step, allowed, called, take=take)
        else:
            self._not_halted(at, frame.run, called)
            if "body" not in allowed:
                raise Complaint(f"{at.path}: the body of {body_name(step, args)} ran; allowed: {_said(allowed)}")
            run.begin(key, called.at, seen.all("began")[0].at, sure=True)
            text = await self._with_body(at, run, key, step, take=take)
        if seen.one("closed") is not None and not step.keyed:
            frame.give_back(equal, key.occurrence)
        return text

    def _allowed(
        self, name: object, run: RunMemory, key: Key, step: StepSpec, take: int | None
    ) -> dict[str, set[str | None]]:
        """What may happen: "body", "restore", "part", "raise" and "unknown" with their texts, or a refusal's code."""
        allowed: dict[str, set[str | None]] = {}
        modes = self._modes.get(name, {False})

        def allow(what: str, text: str | None = None) -> None:
            allowed.setdefault(what, set()).add(text)

        for status in run.statuses(key):
            for over in modes:
                if status.kind in ("result", "unknown"):
                    allow("restore" if status.kind == "result" else "unknown", status.text)
                elif status.kind == "error":
                    again = {True} if over or step.tool == "unsafe" else run.handled(key, status)
                    for handled in again:
                        allow("raise" if handled else "body", status.text)
                elif over and status.text is not None and is_within(status.text, take):
                    allow("part", status.text)
                elif over:
                    allow("run_completed")
                elif status.kind == "begun" or self._program.on_change == "rerun":
                    allow("body")
                else:
                    for diverges in run.unconsumed(key, self._consumed.get(name, ())):
                        allow("diverged" if diverges else "body")
        return allowed

    def _without_body(
        self,
        at: Place,
        run: RunMemory,
        key: Key,
        step: StepSpec,
        allowed: dict[str, set[str | None]],
        called: Event,
        *,
        take: int | None,
    ) -> str:
        """The call was answered from its record, refused, or the process died before anything happened."""
        seen = self._seen(at)
        if (refused := seen.one("refused")) is not None:
            if f"{REFUSED}{refused.text}" in allowed.get("raise", ()):
                self._because.add(refused.text)
                raise Halted(refused.text)
            raise self._refused(at, at.frame.run, refused, set(allowed))
        closed = seen.one("closed")
        answer = seen.one("raised") or seen.one("returned") or closed
        if answer is None:
            if "body" in allowed:
                run.begin(key, called.at, NEVER, sure=False)
                again = Status("unknown" if step.tool == "unsafe" else "begun", since=called.at)
                run.cells[key] = run.statuses(key) | {again}
            raise Dead
        self._not_halted(at, at.frame.run, called)
        if answer.what == "raised":
            if answer.text not in allowed.get("raise", ()):
                raise Complaint(f"{at.path}: {key.name} raised {answer.text!r} again; allowed: {_said(allowed)}")
            run.cells[key] = frozenset(s for s in run.statuses(key) if s.text == answer.text)
            self.restored += 1
            raise Broken(answer.text)
        kind = "unknown" if _is_unknown(answer.text, step.name) else "result"
        texts = allowed.get("restore" if kind == "result" else kind, set())
        fits = answer.text in texts or (kind == "unknown" and None in texts)
        if closed is not None:
            texts = texts | allowed.get("part", set())
            fits = any(text is not None and begins(text, closed.text, take) for text in texts)
        if not fits:
            raise Complaint(f"{at.path}: {key.name} gave {answer.text} without a body; allowed: {_said(allowed)}")
        self.restored += kind == "result"
        self.unknown += kind == "unknown"
        if closed is not None:
            return f"{take} items"
        run.cells[key] = frozenset({Status(kind, answer.text)})
        return answer.text

    async def _with_body(self, at: Place, run: RunMemory, key: Key, step: StepSpec, *, take: int | None) -> str:
        """The body ran, perhaps more than once: what it did, what the agent got, and what that leaves on record."""
        seen = self._seen(at)
        began, failed = seen.all("began"), seen.all("failed")
        left = Status("unknown") if step.tool == "unsafe" else BEGUN
        run.cells[key] = frozenset({left})
        if len(began) > step.retries + 1 or len(failed) > len(began) or len(began) > len(failed) + 1:
            raise Complaint(f"{at.path}: {key.name} began {len(began)} times and failed {len(failed)} times")
        if any(event.body != body_name(step, key.args) for event in began):
            raise Complaint(f"{at.path}: {key} ran as {began}")
        await self._within(at, key, step, began)
        returned, raised, ended, closed = (seen.one(what) for what in ("returned", "raised", "ended", "closed"))
        if (refused := seen.one("refused")) is not None:
            error = Status("error", f"{REFUSED}{refused.text}", began[-1].at, refused.at)
            run.cells[key] = frozenset({left, error})  # an error only where a run within the body was refused
            raise self._refused(at, at.frame.run, refused, set())
        if closed is not None:
            if step.tool != "unsafe":  # what was taken goes on record with the next commit
                run.cells[key] = frozenset({left, Status("begun", closed.text)})
            return f"{take} items"
        if ended is not None:
            run.cells[key] = frozenset({left, Status("result", ended.text)})
            if raised is not None or (returned is not None and returned.text != ended.text):
                raise Complaint(f"{at.path}: the body gave {ended.text}, the agent got {(returned or raised)}")
            if returned is not None:
                run.cells[key] = frozenset({Status("result", ended.text)})
                return returned.text
        elif failed:
            error = Status("error", failed[-1].text, failed[-1].at, NEVER if raised is None else raised.at)
            run.cells[key] = frozenset({error, left} if raised is None else {error})
            if returned is not None or (raised is not None and raised.text != failed[-1].text):
                raise Complaint(f"{at.path}: the body raised {failed[-1].text!r}, the agent got {returned or raised}")
            if raised is not None:
                if len(failed) <= step.retries:
                    raise Complaint(f"{at.path}: {key.name} was not tried again, with {step.retries} retries")
                raise Broken(raised.text)
        elif returned is not None or raised is not None:
            raise Complaint(f"{at.path}: the body did not end, the agent got {returned or raised}")
        raise Dead

    async def _within(self, at: Place, key: Key, step: StepSpec, began: list[Event]) -> None:
        """Follow each try of a body that calls steps itself."""
        for number in range(1, len(began) + 1 if step.block else 1):
            env: Env = {f"p{place}": str(arg) for place, arg in enumerate(key.args)}
            inner = Frame(at.frame.run, (*key.scope, ("call", key.name, key.args, key.occurrence)))
            try:
                await self._walker.block(step.block, env, Place(f"{at.path}.t{number}", inner))
            except Broken:
                continue
            except Halted:
                if self._seen(at).one("refused") is None:
                    raise Dead from None
                return

    # -- runs and branches --------------------------------------------------------------------------------------

    def _over(self, outer: Frame, name: object, run: RunMemory) -> set[bool]:
        """Whether nothing new may run in a run that is entered now.

        It is completed; or it failed and the run around it went on from that, or is over itself.
        """
        said: set[bool] = set()
        for state in run.states:
            around = self._modes.get(outer.run, {False})
            if state == "completed":
                said.add(True)
            elif outer.run is None:
                said.add(False)
            elif state in ("new", "open"):  # an open one too gets nothing new within a run that is over
                said |= around
            elif around == {True}:
                said.add(True)
            else:
                said |= self.memory.run(outer.run).handled(_child_key(outer, name), run.failure)
        return said

    def _note_child(self, outer: Frame, name: object, run: RunMemory, called: Event, entered: Event | None) -> None:
        if "new" not in run.states:
            return
        sure = entered is not None and run.states == {"new"}
        if outer.run is not None:
            until = NEVER if entered is None else entered.at
            self.memory.run(outer.run).begin(_child_key(outer, name), called.at, until, sure=sure)
        run.states = {"new", "open"} if entered is None else {"open"}

    def _left(self, seen: _Seen, name: object, run: RunMemory, failure: Exception | None) -> None:
        left, raised, refused = seen.one("left"), seen.one("raised"), seen.one("refused")
        over = self._modes[name]
        if failure is None and name in self._halts:
            failure = Halted(self._halts[name][0])
        entered = seen.one("entered")
        if isinstance(failure, Broken) and over != {True} and entered is not None:
            until = NEVER if raised is None else raised.at
            run.failure = Status("error", None, entered.at, until)
            run.states = ({"open", "failed"} if until == NEVER else {"failed"}) | (run.states & {"completed"})
        if failure is None:
            if refused is not None or raised is not None:
                raise Complaint(f"{seen.path}: the run ended well, and leaving it gave {refused or raised}")
            if over != {True}:
                run.states = {"completed"} if left is not None else run.states | {"completed"}
                if left is not None:
                    run.settle_parts()
            if left is None:
                raise Dead
            return
        if left is not None:
            raise Complaint(f"{seen.path}: the run was left with {failure!r}, and nothing was raised")
        if isinstance(failure, Broken):
            if raised is None:
                raise Dead
            raise failure
        if refused is None:
            raise Dead
        raise failure

    def _joined(self, seen: _Seen, errors: list[Exception], *, dead: bool) -> None:
        """How a gather, a map or threads end: each branch has ended, and the first error by number is raised."""
        ends = [event for event in seen.events if event.what in ("returned", "raised", "refused")]
        if not ends:
            raise Dead
        end = ends[0]
        if dead:
            raise Complaint(f"{seen.path}: branches were joined ({end.what} {end.text}) and one had not ended")
        if not errors:
            if end.what != "returned":
                raise Complaint(f"{seen.path}: every branch ended well, and the join {end.what} {end.text}")
            return
        halted = [error for error in errors if isinstance(error, Halted)]
        first = halted[0] if halted and end.what == "refused" else errors[0]
        if end.text != str(first):
            raise Complaint(f"{seen.path}: the join {end.what} {end.text!r} and not {first!r}")
        raise first

    def _refused(self, at: Place, run: object, event: Event, allowed: set[str]) -> Halted:
        code = event.text
        if code in allowed:
            self._because.add(code)
            self._halts.setdefault(run, (code, event.at))
            self.diverged += code == "diverged"
        elif run in self._halts:
            pass
        else:
            self._owed.append((at.path, code))
        return Halted(code)

    def _not_halted(self, at: Place, run: object, called: Event) -> None:
        halt = self._halts.get(run)
        if halt is not None and called.at > halt[1]:
            raise Complaint(f"{at.path}: the session had said {halt[0]!r}, and the call was answered")

    def _seen(self, at: Place) -> _Seen:
        return _Seen(at.path, self._trace.get(at.path, ()))


def _child_key(outer: Frame, name: object) -> Key:
    return Key(outer.scope, "", (str(name),), 0)


def _began(events: Sequence[Event]) -> bool:
    """Whether these are of a call whose start was committed: what was handed to the store before it is on disk too."""
    return events[0].what == "call" and any(event.what == "began" and event.body != "value" for event in events)


def _is_unknown(text: str, tool: str) -> bool:
    if not text.startswith("{'outcome'"):
        return False
    said = ast.literal_eval(text)
    return said["outcome"] == "unknown" and said["tool"] == tool


def _said(allowed: dict[str, set[str | None]]) -> str:
    return "; ".join(
        what if texts == {None} else f"{what} {sorted(map(str, texts))}" for what, texts in allowed.items()
    )
