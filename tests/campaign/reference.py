"""What DESIGN.md demands of one run from life to life, said without the ledger: a small model to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.campaign.programs import Program, key_of, value_of

ALLOWED_IN = {"quarantine": "open", "release": "quarantined", "takeover": "open", "cancel": "open quarantined"}
LEADS_TO = {"quarantine": "quarantined", "release": "open", "takeover": "open", "cancel": "cancelled"}
STOPPED = {"quarantined": "RunQuarantined", "cancelled": "RunCancelled", "completed": "result"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One life of a run: the call each step must be and its result, what is restored before any body can run, what
    `execute` may end with if nobody kills it, and whether nothing may be written and no body run."""

    keys: dict[str, str]
    values: dict[str, object]
    result: object
    restored: frozenset[str]
    ends: frozenset[str]
    silent: bool


@dataclass(slots=True, kw_only=True)
class Reference:
    """What a run remembers. `state`: new, open (running or failed), quarantined, cancelled or completed."""

    x: int
    state: str = "new"
    recorded: set[tuple[str, str]] = field(default_factory=set)
    result: object = None

    def expect(self, program: Program) -> Expected:
        """Say what a life with this program may do."""
        keys: dict[str, str] = {}
        values: dict[str, object] = {}
        restored, known, reached, bad = set[str](), set[str](), set[str](), set[str]()
        refused = False
        for node in program.in_order():
            key = keys[node.name] = key_of(node, values, self.x)
            values[node.name] = value_of(node, key)
            is_recorded = (node.name, key) in self.recorded
            changed = not is_recorded and any(name == node.name for name, _ in self.recorded)
            diverges = changed and (node.on_change or program.on_change) == "refuse"
            told = known.issuperset(node.takes)  # its call can be told before any body runs
            refused |= diverges and told
            if is_recorded and told:
                known.add(node.name)
            if is_recorded and restored.issuperset(node.needs):
                restored.add(node.name)
            if reached.issuperset(node.needs):
                if is_recorded or not (diverges or node.fails):
                    reached.add(node.name)
                else:
                    bad.add("Diverged" if diverges else f"raised {node.name}")
        finals = {name: values[name] for name in program.terminals}
        result = next(iter(finals.values())) if len(finals) == 1 else finals
        over = STOPPED.get(self.state)
        return Expected(
            keys=keys,
            values=values,
            result=self.result if self.state == "completed" else result,
            restored=frozenset(restored),
            ends=frozenset({over} if over else {"Diverged"} if refused else bad or {"result"}),
            silent=over is not None or refused,
        )

    def lived(self, recorded: set[tuple[str, str]], state: str, expected: Expected) -> None:
        """Remember what a life left behind: every call it recorded, and the state it brought the run to."""
        if state == "completed" and self.state != "completed":
            self.result = expected.result
        self.recorded |= recorded
        self.state = state
