"""`python -m agent_run_ledger.benchmark`."""

from __future__ import annotations

import sys

from agent_run_ledger.benchmark import main

sys.exit(main(sys.argv[1:]))
