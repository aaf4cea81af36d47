"""Looks for free ports, for those who choose ports before they start a process that will listen there.

Somebody may take a port in between; the process that finds it taken says so. Ports of the range from which the system
gives them to connections (the ephemeral ones) are taken by chance at any time; others are taken on purpose only.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.errors import UnavailableError

EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Where Linux tells the first and the last port that it gives to connections."""
USUAL_EPHEMERAL = 32_768, 65_535
"""Of systems that do not tell: Linux begins with the first, others begin later."""
LOWEST, HIGHEST = 10_000, 65_535
"""Lower ones are those of well-known services."""


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen at this address.

    >>> is_free("192.0.2.1", 9092)  # an address of nobody
    False
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError:
        return False
    return True


def lasting_ports(host: str, count: int, *, ephemeral: tuple[int, int] | None = None) -> list[int]:
    """Return free ports, all different, that no connection gets while their server is down.

    They are drawn, so that two who look at the same time seldom find the same. Where the system gives all ports to
    connections, they are of those.

    :param ephemeral: the first and the last port that the system gives to connections; None: it is asked.
    :raises UnavailableError: there are not so many.

    >>> all(10_000 <= port < 32_768 for port in lasting_ports("127.0.0.1", 3, ephemeral=(32_768, 65_535)))
    True
    """
    first, last = _ephemeral() if ephemeral is None else ephemeral
    lasting = [*range(LOWEST, min(first, HIGHEST + 1)), *range(max(last + 1, LOWEST), HIGHEST + 1)]
    found = list(itertools.islice(_free_among(host, [lasting, range(LOWEST, HIGHEST + 1)]), count))
    if len(found) < count:
        raise UnavailableError(f"{host} has no {count} free ports of {LOWEST} or more")
    return found


def _free_among(host: str, choices: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield free ports, each once: those of the first choice in any order, then those of the next."""
    seen: set[int] = set()
    for ports in choices:
        for port in random.sample(ports, len(ports)):
            if port not in seen and is_free(host, port):
                yield port
            seen.add(port)


def _ephemeral() -> tuple[int, int]:
    try:
        first, last = EPHEMERAL_RANGE.read_text(encoding="ascii").split()
    except OSError:
        return USUAL_EPHEMERAL
    return int(first), int(last)
