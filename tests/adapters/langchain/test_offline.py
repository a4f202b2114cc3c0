"""The network is off here, in this process and in those that it starts, and nothing is traced."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from langsmith.utils import tracing_is_enabled

from agent_run_ledger.testing.no_network import NetworkRefused
from tests.adapters.offline import OFFLINE

REACHES = "import socket; socket.create_connection(('192.0.2.1', 443), timeout=0.1)"


def test_the_network_is_refused_here_and_in_programs_that_are_started(network_log: Path, tmp_path: Path) -> None:
    with pytest.raises(NetworkRefused, match=r"connect 192\.0\.2\.1"), socket.socket() as one:
        one.connect(("192.0.2.1", 443))
    program = tmp_path / "program.py"
    program.write_text(REACHES, encoding="utf-8")
    done = subprocess.run([*OFFLINE, str(program)], capture_output=True, text=True, check=False)
    assert "NetworkRefused" in done.stderr
    assert network_log.read_text(encoding="utf-8").splitlines() == ["connect 192.0.2.1", "getaddrinfo 192.0.2.1"]
    network_log.unlink()


def test_nothing_is_traced() -> None:
    assert tracing_is_enabled() is False
    assert not [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_")) and "KEY" in name]
