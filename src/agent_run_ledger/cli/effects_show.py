"""`arl effects show`: the whole story of a key: members, transitions, request, and what may be done next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_run_ledger.cli.options import ActionId, Db, Json

if TYPE_CHECKING:
    from agent_run_ledger.cli.settings import Setting
    from agent_run_ledger.ledger.effect_inbox import Waiting
    from agent_run_ledger.ledger.effect_story import Asked, Member, Story


def show_effect(action: ActionId, db: Db = None, as_json: Json = False) -> None:
    """Show a key's members, who did what when and by which evidence, the request, and what may be done next."""
    from agent_run_ledger.cli.copies import copy_json, note_copy
    from agent_run_ledger.cli.effects_json import member_json
    from agent_run_ledger.cli.output import print_json
    from agent_run_ledger.cli.settings import db_setting
    from agent_run_ledger.cli.stores import reading
    from agent_run_ledger.ledger.effect_inbox import find_action
    from agent_run_ledger.ledger.effect_story import read_story

    setting = db_setting(db)
    with reading(db) as store:
        found = find_action(store, action).action
        story, copy = read_story(store, found.action_key), copy_json(store)
        note_copy(store, quiet=as_json)
    if as_json:
        print_json(
            {
                "key": story.action_key,
                "action_id": found.action_id.hex(),
                "ledger": {
                    "state": str(story.where.standing.state),
                    "epoch": story.where.standing.epoch,
                    "witness": str(story.where.standing.witness),
                },
                "members": [member_json(one, setting) for one in story.members],
                "copy": copy,
            }
        )
        return
    _print(story, setting)


def _print(story: Story, setting: Setting) -> None:
    from agent_run_ledger.cli.folding import say_folded
    from agent_run_ledger.cli.output import say
    from agent_run_ledger.cli.words import clean, counted

    standing = story.where.standing
    say_folded(f"{clean(story.action_key)}: {counted(len(story.members), 'member')}")
    say_folded(f"ledger {standing.state} as seen from here, epoch {standing.epoch}, witness {standing.witness}")
    for number, member in enumerate(story.members, 1):
        say("")
        _print_member(member, number, setting)


def _print_member(member: Member, number: int, setting: Setting) -> None:
    from agent_run_ledger.cli.effects_told import told_words
    from agent_run_ledger.cli.effects_words import age_words, approvals_words, evidence_words, state_words
    from agent_run_ledger.cli.folding import say_exact, say_folded
    from agent_run_ledger.cli.output import say, show_named
    from agent_run_ledger.cli.words import clean, iso

    one = member.waiting
    action, terms = one.action, one.action.terms
    say_folded(f"{number}. {action.action_id.hex()}: {clean(state_words(one))}")
    lines = [
        ("age", age_words(one)),
        ("asked by", action.requester),
        ("executor", terms.executor),
        ("worker", action.worker or "none"),
        ("target", terms.audience),
        ("class", f"{terms.target_class}: {one.view.guarantee}"),
        ("window", f"{iso(terms.not_before_ms)} to {iso(terms.dispatch_before_ms)}"),
        ("number", "no generation yet" if action.generation is None else f"generation {action.generation}"),
        ("approved", approvals_words(action)),
        *(("needs", f"{name} is {value}") for name, value in terms.preconditions),
        *(("evidence", words) for words in evidence_words(action)),
        *(("beware", words) for words in one.view.not_protected),
    ]
    show_named([(f"   {name}", words) for name, words in lines])
    say("   request:")
    for line in _asked_lines(member.asked, terms.request_sha256):
        say_exact(clean(line), before="     ")
    say("   what happened:")
    for told in member.told:
        at, words = iso(told.command.now.latest_ms), clean(told_words(told))
        say_folded(f"{at} leaf {told.leaf_index}: {words}", before="     ")
    _print_ways(one, setting)


def _print_ways(one: Waiting, setting: Setting) -> None:
    """Print what may be done next, and what the rules would refuse now with what is missing."""
    from agent_run_ledger.cli.effects_words import STEP_WORDS, next_words, way_command, way_words, worker_goes_on
    from agent_run_ledger.cli.folding import say_folded
    from agent_run_ledger.cli.output import say
    from agent_run_ledger.cli.words import clean

    if not one.ways:
        say("   what may be done next: nothing")
        return
    say("   what may be done next:")
    if worker_goes_on(one):
        say_folded(clean(next_words(one)), before="     ")
    for way in one.ways:
        if way.open:
            _print_way(clean(way_words(way)), way_command(setting, way, one))
    for way in one.ways:
        if not way.open:
            say_folded(clean(f"not now: {STEP_WORDS[way.step]}: {way.words} ({way.refused})"), before="     ")


def _print_way(words: str, command: str) -> None:
    """Print one way on; a command that does not fit beside the words has a line of its own, to be copied whole."""
    from agent_run_ledger.cli.folding import folded, say_folded, stdout_width
    from agent_run_ledger.cli.output import say

    whole = f"{words}: {command}" if command else words
    if not command or len(folded(whole, stdout_width(), before="     ")) == 1:
        say_folded(whole, before="     ")
        return
    say_folded(f"{words}:", before="     ")
    say(f"       {command}")


def _asked_lines(asked: Asked, request_sha256: bytes) -> list[str]:
    if asked.size is None:
        return [f"lost: this member was rebuilt from evidence; its bytes had the digest {request_sha256.hex()}"]
    lines = [] if asked.intact else ["THESE ARE NOT THE BYTES OF ITS DIGEST"]
    if asked.display is None:
        said = f"{asked.size} bytes, no request of version 1, SHA-256 {request_sha256.hex()}"
        return [*lines, said]
    if not asked.shown_as_approved:
        lines.append("THE APPROVED STATEMENT NAMES ANOTHER DISPLAY THAN THIS ONE")
    return [*lines, *asked.display.rstrip("\n").split("\n")]
