"""A kit for users' own crash tests: kill a scenario at every point, let it go on, and check what the ledger says."""

from agent_run_ledger.testing.body_counter import BodyCounter, Ran
from agent_run_ledger.testing.crash import (
    CrashCheckFailed,
    Lives,
    Summary,
    crash_everywhere,
    left_by_death,
    no_body_without_a_start,
    nothing_recorded_ran_again,
    what_was_in_flight_is_abandoned,
)
from agent_run_ledger.testing.disk import WatchedDisk, watched_disk
from agent_run_ledger.testing.harness import Exit, Life, LifeTimeout, RunningLife, run_scenario, start_scenario
from agent_run_ledger.testing.ledger_check import LedgerBroken, LedgerReport, check_ledger
from agent_run_ledger.testing.points import ALL, KillPoint, Point
from agent_run_ledger.testing.power_cut import (
    CutFailure,
    PowerCheckFailed,
    PowerCut,
    PowerSummary,
    cut_power_everywhere,
)
from agent_run_ledger.testing.power_disk import recorded_disk
from agent_run_ledger.testing.power_images import PowerDisk, PowerImage
from agent_run_ledger.testing.power_second_life import AfterCut
from agent_run_ledger.testing.power_trace import PowerTrace
from agent_run_ledger.testing.recorded_calls import RecordedCall, calls_in_flight, recorded_calls

__all__ = [
    "ALL",
    "AfterCut",
    "BodyCounter",
    "CrashCheckFailed",
    "CutFailure",
    "Exit",
    "KillPoint",
    "LedgerBroken",
    "LedgerReport",
    "Life",
    "LifeTimeout",
    "Lives",
    "Point",
    "PowerCheckFailed",
    "PowerCut",
    "PowerDisk",
    "PowerImage",
    "PowerSummary",
    "PowerTrace",
    "Ran",
    "RecordedCall",
    "RunningLife",
    "Summary",
    "WatchedDisk",
    "calls_in_flight",
    "check_ledger",
    "crash_everywhere",
    "cut_power_everywhere",
    "left_by_death",
    "no_body_without_a_start",
    "nothing_recorded_ran_again",
    "recorded_calls",
    "recorded_disk",
    "run_scenario",
    "start_scenario",
    "watched_disk",
    "what_was_in_flight_is_abandoned",
]
