"""What a trust file may not say: each rule by a stable code, with the place where it is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from agent_run_ledger.errors import Refused
from agent_run_ledger.kernel.canonical import MAX_INT
from agent_run_ledger.kernel.effects.principals import ApprovalPolicy, Principal, PrincipalKind
from agent_run_ledger.kernel.effects.states import Role
from agent_run_ledger.kernel.public_keys import is_sound
from agent_run_ledger.kernel.strict_json import shown

if TYPE_CHECKING:
    from agent_run_ledger.kernel.effects.trust import TrustFile

LEDGER_ID_BYTES: Final = 16
DIGEST_BYTES: Final = 32

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,127}")
"""Characters of which no two look alike enough to pass for one another in another script."""

Flaw = tuple[str, str, str]
"""The code of a rule, the path of what breaks it, and how, in words."""


class BadTrust(Refused, ValueError):
    """Something is no trust file. `code` says which rule it breaks, `path` where."""

    code = "bad_trust"

    def __init__(self, code: str, path: str, reason: str) -> None:
        super().__init__(f"this is no trust file: {path}: {reason}", code=code)
        self.path = path


def check(trust: TrustFile) -> None:
    """Raise BadTrust for the first rule that a trust file breaks."""
    for rule in RULES:
        for code, path, reason in rule(trust):
            raise BadTrust(code, path, reason)


def _twice(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            yield name
        seen.add(name.casefold())


def _numbers(trust: TrustFile) -> Iterator[Flaw]:
    if len(trust.ledger_id) != LEDGER_ID_BYTES:
        yield "bad_ledger_id", "$.ledger_id", f"a ledger's id has {LEDGER_ID_BYTES} bytes"
    counted = {"$.serial": trust.serial, "$.officers_needed": trust.officers_needed}
    for policy in trust.policies:
        counted[f"policy {policy.name}"] = policy.approvals_needed
        counted[f"the window of policy {policy.name}"] = policy.max_window_ms
    for path, number in counted.items():
        if not 1 <= number <= MAX_INT:
            yield "bad_number", path, f"{number} is not at least 1 and below 2**53"


def _names(trust: TrustFile) -> Iterator[Flaw]:
    for what, named in (("principal", trust.principals), ("policy", trust.policies)):
        for one in named:
            if not _NAME.fullmatch(one.name):
                yield "bad_name", f"{what} {shown(one.name)}", "a name is 1 to 128 of the characters A-Za-z0-9._@+:/-"
        for name in _twice(one.name for one in named):
            yield f"{what}_twice", f"{what} {name}", "it is there already, be it in other letters' case"


def _keys(trust: TrustFile) -> Iterator[Flaw]:
    seen: dict[bytes, str] = {}
    for principal in trust.principals:
        path = f"principal {principal.name}"
        for key in principal.keys:
            if not is_sound(key.public):
                yield "bad_key", path, f"{key.public.hex()} is no key that proves anything"
            if key.public in seen:
                yield "key_twice", path, f"key {key.key_id} is that of {seen[key.public]} already"
            seen[key.public] = principal.name
            if not -MAX_INT <= key.not_before_ms < key.not_after_ms <= MAX_INT:
                yield "bad_validity", path, f"key {key.key_id} is over before it begins"


def _roles(trust: TrustFile) -> Iterator[Flaw]:
    for principal in trust.principals:
        path, roles = f"principal {principal.name}", principal.roles
        if not roles:
            yield "no_role", path, "it has no role: leave it out"
        if Role.EXECUTOR in roles and Role.APPROVER in roles:
            yield "approver_is_executor", path, "who carries actions out approves none"
        if Role.EXECUTOR in roles and Role.RECONCILER in roles:
            yield "reconciler_is_executor", path, "who carries actions out does not decide how they ended"
        if not principal.keys and not roles.isdisjoint({Role.APPROVER, Role.OFFICER}):
            yield "no_key", path, "an approver or officer without a key can sign nothing"
        yield from _automatic(path, principal)


def _automatic(path: str, principal: Principal) -> Iterator[Flaw]:
    automatic = principal.kind is PrincipalKind.AUTOMATIC
    if automatic and Role.OFFICER in principal.roles:
        yield "officer_is_no_person", path, "officers are people"
    if automatic and Role.APPROVER in principal.roles:
        if principal.rules_sha256 is None or len(principal.rules_sha256) != DIGEST_BYTES:
            yield "no_rules", path, "an automatic approver names the SHA-256 of the rules by which it decides"
    elif principal.rules_sha256 is not None:
        yield "needless_rules", path, "only an automatic approver decides by rules with a digest"


def _officers(trust: TrustFile) -> Iterator[Flaw]:
    if len(trust.officers) < trust.officers_needed:
        said = f"{len(trust.officers)} officers cannot be {trust.officers_needed}"
        yield "few_officers", "$.officers_needed", said


def _policies(trust: TrustFile) -> Iterator[Flaw]:
    known = {one.name: one for one in trust.principals}
    for policy in trust.policies:
        path = f"policy {policy.name}"
        for name in sorted(policy.approvers):
            if name not in known:
                yield "unknown_approver", path, f"{shown(name)} is no principal"
            elif Role.APPROVER not in known[name].roles:
                yield "not_an_approver", path, f"{name} has not the role of an approver"
        yield from _counts(path, policy, [known[name] for name in policy.approvers if name in known])


def _counts(path: str, policy: ApprovalPolicy, approvers: list[Principal]) -> Iterator[Flaw]:
    needed, people = policy.approvals_needed, sum(one.kind is PrincipalKind.PERSON for one in approvers)
    if len(approvers) < needed:
        yield "few_approvers", path, f"{len(approvers)} approvers cannot give {needed} approvals"
    if not 0 <= policy.people_needed <= needed:
        yield "bad_number", path, f"{policy.people_needed} of {needed} approvals cannot be by people"
    if people + min(len(approvers) - people, needed - policy.people_needed) < needed:
        yield "few_people", path, f"with {people} people among them its approvers never add up to {needed}"


RULES: Final[tuple[Callable[[TrustFile], Iterator[Flaw]], ...]] = (
    _numbers,
    _names,
    _keys,
    _roles,
    _officers,
    _policies,
)
