"""Lives that dispatch one approved action to a server, and a server that dies with its answer half said."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from agent_run_ledger.ledger.effect_ledger import EffectLedger
from agent_run_ledger.store.ledger_place import LEDGER_FILE
from agent_run_ledger.targets import http
from agent_run_ledger.testing.body_counter import LIFE_VARIABLE
from tests.contract.target_servers import read_request
from tests.fault.effect_kit import EXECUTOR

KEY = "refund:17"
URL_VARIABLE, HEADER_VARIABLE, WORKER_VARIABLE = "TEST_TARGET_URL", "TEST_TARGET_HEADER", "TEST_WORKER"


def dispatch(workdir: Path) -> object:
    """Dispatch the action of the key, as a worker of this life, and return the state that it then is in."""
    target = http(os.environ[URL_VARIABLE], os.environ.get(HEADER_VARIABLE) or None)
    worker = os.environ.get(WORKER_VARIABLE) or f"life {os.environ[LIFE_VARIABLE]}"
    with EffectLedger(workdir / LEDGER_FILE) as ledger:
        (view,) = ledger.inspect(KEY)
        return str(ledger.dispatcher(target, EXECUTOR, worker=worker).dispatch(view.action_id).view.state)


def die_answering(effects: Path) -> None:
    """Serve one request: note its effect in a file, say half an answer, and die."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
        with connection, effects.open("ab") as done:
            done.write(read_request(connection).split(b"\r\n")[0] + b"\n")
            done.flush()
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndo")
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_answering(Path(sys.argv[1]))
