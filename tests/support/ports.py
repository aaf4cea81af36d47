"""Ports for brokers that tests start and restart: none that anybody else could get while its broker is down.

The system gives connections ports of 32768 and more; these are below. Of test processes that run side by side
(pytest-xdist), each has ports of its own, and gives none twice before it has given all.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

LOWEST = 10_000
RANGE = 1_000
PROCESSES_MAX = 22


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_ports() -> Iterator[int]:
    """Yield ports of this process's range, from any one on: another run on this machine begins elsewhere."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES_MAX
    number = random.randrange(RANGE)
    while True:
        number = (number + 1) % RANGE
        port = LOWEST + process * RANGE + number
        if _is_free(port):
            yield port


_ports = _free_ports()


def free_port() -> int:
    """Return a port at which nobody listens."""
    return next(_ports)
