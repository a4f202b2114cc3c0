"""What a transaction is known to ask first: a store at a server answers it in the round trip that takes the lock."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Question(NamedTuple):
    """A question of `Tx` by its method, and what it is about: a run_id, a run's row id or a record's id."""

    method: Literal["find_run", "standing", "in_flight", "budgets", "is_erased"]
    about: int | str
