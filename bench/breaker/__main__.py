"""`python -m bench.breaker`: tries the loop breaker on labelled runs and writes its results, picture and tables."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.breaker.measure import measure, read_corpus
from bench.breaker.page import rewritten
from bench.breaker.picture import picture

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "guide" / "breaker.md"


def main() -> None:
    """Measure on --corpus with --labels NAME=FILE (both may come again), or draw what was kept with --redraw."""
    asked = argparse.ArgumentParser(prog="python -m bench.breaker", description=main.__doc__)
    asked.add_argument("--corpus", type=Path, action="append", default=[])
    asked.add_argument("--labels", metavar="NAME=FILE", action="append", default=[])
    asked.add_argument("--redraw", action="store_true", help="write picture and tables from the kept results")
    given = asked.parse_args()
    kept = RESULTS / "breaker.json"
    if not given.redraw:
        labels = {name: Path(file) for name, _, file in (one.partition("=") for one in given.labels)}
        report = measure(read_corpus(given.corpus), labels)
        kept.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    report = json.loads(kept.read_text(encoding="utf-8"))
    (RESULTS / "breaker.svg").write_text(picture(report), encoding="utf-8")
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), report), encoding="utf-8")
    print(f"F1 {report['all']['f1']} on {report['all']['scored']} runs; wrote {kept}, the picture and {PAGE}")


if __name__ == "__main__":
    main()
