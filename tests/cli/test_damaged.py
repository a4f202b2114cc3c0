"""On a damaged store a command shows what it can or calls the store tampered; it never fails as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Arl, edit, is_safe

LOOKS = [
    ("runs", "list"),
    ("runs", "show", "crashed", "--payloads"),
    ("runs", "show", "changed", "--step", "review"),
    ("runs", "show", "crashed", "--payloads", "--json"),
    ("runs", "explain", "changed"),
    ("export", "--payloads", "--fingerprints"),
    ("verify",),
    ("doctor", "--json"),
]
VALUES = [
    "x''",
    "x'00ff80'",
    "CAST('[]' AS BLOB)",
    "CAST('null' AS BLOB)",
    "CAST('5' AS BLOB)",
    'CAST(\'{"steps": 5, "used": 7, "holder": 1, "inputs": [], "policy": 3, "max_parallel": "x"}\' AS BLOB)',
    'CAST(\'{"steps": [[1, 2, 3], 5], "used": [[]], "code_changed": {}, "a": 5, "because": 5}\' AS BLOB)',
    'CAST(\'{"$arl": "nonsense", "t": 5, "m": []}\' AS BLOB)',
]
DAMAGES = [f"UPDATE records SET payload = {value}" for value in VALUES]
DAMAGES += [f"UPDATE records SET payload = {value}, encoding = 1" for value in VALUES[:3]]
DAMAGES += [f"UPDATE records SET inputs = {value}" for value in VALUES]
DAMAGES += [
    "UPDATE records SET salt = NULL, payload = NULL",
    "UPDATE records SET encoding = 77",
    "UPDATE records SET name = char(27) || '[2J' || char(10) || name",
    "UPDATE records SET started_at_ms = 1 << 60, ended_at_ms = -5",
    "UPDATE records SET attempt = 99, tries = -1",
    "UPDATE runs SET holder = char(27) || ']0;x', reason = char(10) || '[red]'",
    "UPDATE runs SET run_id = run_id || char(27) || '[2J'",
    "UPDATE runs SET start_record_id = NULL, last_start_record_id = NULL, end_record_id = NULL",
    "UPDATE runs SET last_start_record_id = 1",
    "UPDATE runs SET updated_at_ms = 1 << 60, created_at_ms = -(1 << 60)",
    "UPDATE in_flight SET started_at_ms = -1, name = char(27)",
    "DELETE FROM records WHERE kind <> 2",
    "DELETE FROM records",
    "DELETE FROM head",
    "DROP TRIGGER events_no_delete",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_makes_a_command_fail_as_a_program_or_print_what_a_terminal_obeys(
    arl: Arl, store: Path, damage: str
) -> None:
    edit(store, damage)
    for look in LOOKS:
        ended = arl(*look, "--db", store)
        assert ended.code in (0, 1, 6), (look, ended.err)
        assert is_safe(ended.out)
        assert is_safe(ended.err)
