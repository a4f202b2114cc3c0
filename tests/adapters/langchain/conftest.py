"""No test here, and no process that one starts, reports to anybody."""

from __future__ import annotations

import os

os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
