"""A small reference of the effect ledger, one dict a key, written from the protocol's table and not from the rules."""

from __future__ import annotations

from dataclasses import dataclass, field

OPEN = ("proposed", "available", "claimed", "prepared", "unresolved")
REPLACEABLE = ("rejected", "expired", "revoked", "not_executed")
ONCE = ("n", "v")


@dataclass
class Member:
    """What the table says of one member of a key."""

    body: bytes
    ends_ms: int
    needs: int
    target: str
    state: str = "proposed"
    by: set[str] = field(default_factory=set)
    revoked: bool = False
    worker: str = ""
    prepared_in: int = -1
    permit_ms: int = -1
    was_prepared: bool = False
    handed: int = 0
    drained: bool = False
    looked_after: bool = False
    looked: bool = False


class Reference:
    """Every answer is "" for done, "again" for what is on record, "no" for a refusal."""

    def __init__(self, now_ms: int, *, bound_ms: int) -> None:
        self.now_ms = now_ms
        self.mark_ms = now_ms
        self.bound_ms = bound_ms
        self.opening = 0
        self.keys: dict[str, list[Member]] = {}
        self.permits: list[tuple[str, int]] = []

    def _newest(self, key: str) -> Member | None:
        return self.keys[key][-1] if self.keys.get(key) else None

    @property
    def trusted(self) -> bool:
        """Whether the clock is not below what was believed."""
        return self.now_ms >= self.mark_ms

    @property
    def late_ms(self) -> int:
        return max(self.now_ms, self.mark_ms)

    def _done(self) -> str:
        self.mark_ms = max(self.mark_ms, self.now_ms)
        return ""

    def propose(self, key: str, body: bytes, ends_ms: int, needs: int, target: str) -> str:
        newest = self._newest(key)
        if newest is None:
            self.keys[key] = [Member(body, ends_ms, needs, target)]
            return self._done()
        return "again" if newest.body == body else "no"

    def replace(self, key: str, states: tuple[str, ...], body: bytes, ends_ms: int, target: str) -> str:
        newest = self._newest(key)
        if newest is None or newest.state not in states:
            return "no"
        newest.state = "superseded"
        self.keys[key].append(Member(body, ends_ms, 1, target))
        return self._done()

    def approve(self, key: str, who: str) -> str:
        one = self._newest(key)
        if one is None or one.state != "proposed" or who in one.by or self.late_ms >= one.ends_ms:
            return "no"
        one.by.add(who)
        one.state = "available" if len(one.by) >= one.needs else "proposed"
        return self._done()

    def close(self, key: str, states: tuple[str, ...], into: str) -> str:
        one = self._newest(key)
        if one is None or one.state not in states:
            return "no"
        one.state = into
        return self._done()

    def expire(self, key: str) -> str:
        one = self._newest(key)
        if one is None or not self.trusted or self.now_ms < one.ends_ms:
            return "no"
        return self.close(key, ("proposed", "available"), "expired")

    def revoke(self, key: str) -> str:
        one = self._newest(key)
        if one is None:
            return "no"
        if one.revoked:
            return "again"
        if one.state not in OPEN:
            return "no"
        one.revoked = True
        one.state = "revoked" if one.state in ("proposed", "available") else one.state
        return self._done()

    def claim(self, key: str, worker: str) -> str:
        one = self._newest(key)
        if one is not None and one.worker == worker:
            return "again"
        if one is None or one.state != "available" or not self.trusted or self.now_ms >= one.ends_ms:
            return "no"
        one.state, one.worker = "claimed", worker
        return self._done()

    def prepare(self, key: str, worker: str, permit_ms: int) -> str:
        one = self._newest(key)
        if one is None or not one.worker or one.worker != worker:
            return "no"
        if one.was_prepared:
            return "again"
        if one.state != "claimed" or one.revoked or not self.trusted or self.now_ms >= one.ends_ms:
            return "no"
        one.state, one.was_prepared, one.prepared_in = "prepared", True, self.opening
        one.permit_ms = min(self.now_ms + permit_ms, one.ends_ms)
        return self._done()

    def hand_out(self, key: str, worker: str) -> str:
        one = self._newest(key)
        if one is None or one.state != "prepared" or one.worker != worker or not self.trusted:
            return "no"
        if one.prepared_in != self.opening or one.revoked or one.drained or self.now_ms >= one.permit_ms:
            return "no"
        if one.handed:
            return "no" if one.target in ONCE else "again"
        one.handed += 1
        self.permits.append((key, len(self.keys[key])))
        return self._done()

    def doubt(self, key: str, *, by_clock: bool) -> str:
        one = self._newest(key)
        if one is None or one.state not in ("claimed", "prepared"):
            return "no"
        ends = one.permit_ms if one.was_prepared else one.ends_ms
        if by_clock and (not self.trusted or self.now_ms < ends + self.bound_ms):
            return "no"
        one.state = "unresolved"
        return self._done()

    def drain(self, key: str) -> str:
        one = self._newest(key)
        if one is None or one.state not in ("prepared", "unresolved"):
            return "no"
        one.drained, one.looked_after = True, False
        return self._done()

    def look(self, key: str) -> str:
        one = self._newest(key)
        if one is None or one.state not in ("claimed", "prepared", "unresolved"):
            return "no"
        one.looked_after, one.looked = one.drained, True
        return self._done()

    def write_off(self, key: str) -> str:
        one = self._newest(key)
        return "no" if one is not None and one.looked else self.close(key, ("unresolved",), "written_off")

    def not_executed(self, key: str) -> str:
        one = self._newest(key)
        if one is None or not (one.drained and one.looked_after):
            return "no"
        return self.close(key, ("prepared", "unresolved"), "not_executed")
