"""Finds free ports for a process that is not started yet.

Another process may take the port before the started process; this process then reports an error. The operating system
assigns ephemeral ports to connections at any time. A port outside the ephemeral range is taken only by a process that
chooses this port.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.errors import UnavailableError

EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The file in which Linux publishes the first and the last ephemeral port."""
USUAL_EPHEMERAL = 32_768, 65_535
"""The assumed ephemeral range of systems without this file. 32,768 is Linux's first ephemeral port; other systems start
higher."""
LOWEST, HIGHEST = 10_000, 65_535
"""The range of candidate ports. Lower ports belong to well-known services."""


def is_free(host: str, port: int) -> bool:
    """Return whether a server could listen at this address.

    >>> is_free("192.0.2.1", 9092)  # an address that no machine has
    False
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError:
        return False
    return True


def lasting_ports(host: str, count: int, *, ephemeral: tuple[int, int] | None = None) -> list[int]:
    """Return distinct free ports that stay free while their server is down. They are outside the ephemeral range, so no
    outgoing connection gets them. If all ports are ephemeral, the result contains ephemeral ports. The ports are
    random, so that concurrent callers rarely get the same ports.

    :param ephemeral: the first and the last ephemeral port, or None for the system's range.
    :raises UnavailableError: there are not enough free ports.

    >>> all(10_000 <= port < 32_768 for port in lasting_ports("127.0.0.1", 3, ephemeral=(32_768, 65_535)))
    True
    """
    first, last = _ephemeral() if ephemeral is None else ephemeral
    lasting = [*range(LOWEST, min(first, HIGHEST + 1)), *range(max(last + 1, LOWEST), HIGHEST + 1)]
    found = list(itertools.islice(_free_among(host, [lasting, range(LOWEST, HIGHEST + 1)]), count))
    if len(found) < count:
        raise UnavailableError(f"{host} has fewer than {count} free ports from {LOWEST} on")
    return found


def _free_among(host: str, choices: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield each free port once, in the order of the sequences, and in random order within a sequence."""
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
