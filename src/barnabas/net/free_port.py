"""Looks whether a port is free, for those who choose ports before they start a process that will listen there.

Somebody may take the port in between; the process that finds it taken says so.
"""

from __future__ import annotations

import socket


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
