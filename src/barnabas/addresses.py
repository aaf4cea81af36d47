"""Hosts and ports as text. Only this module parses and formats `host:port`, with IPv6 addresses in brackets (RFC 3986).

All other modules keep hosts without brackets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

PORT_MAX = 65_535

Address = tuple[str, int]


def host_port(host: str, port: int) -> str:
    """Return `host:port` in the form that clients accept.

    >>> host_port("broker-1", 9092), host_port("::1", 9092)
    ('broker-1:9092', '[::1]:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_ports(addresses: Iterable[Address], separator: str = ",") -> str:
    """Return several addresses in the form that clients accept."""
    return separator.join(host_port(host, port) for host, port in addresses)


def without_brackets(host: str) -> str:
    """Return a host without the brackets of an IPv6 address. The host is not validated: its DNS lookup reports errors.

    >>> without_brackets("[::1]"), without_brackets("broker-1")
    ('::1', 'broker-1')
    """
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def bare_host(text: str) -> str:
    """Check a host, and return it without the brackets of an IPv6 address.

    :raises ValueError: the text is not a host; the message begins with the text.

    >>> bare_host("[::1]"), bare_host("broker-1")
    ('::1', 'broker-1')
    >>> bare_host("broker-1:9092")
    Traceback (most recent call last):
    ...
    ValueError: 'broker-1:9092' is not a host name or an IP address
    """
    inside = without_brackets(text)
    if inside != text or ":" in inside:
        is_host = _is_ipv6(inside)
    else:
        is_host = not any(each in "[]/" or each.isspace() for each in inside)
    if not is_host:
        raise ValueError(f"{text!r} is not a host name or an IP address")
    return inside


def is_loopback(host: str) -> bool:
    """Return whether a host stands for this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def split_host_port(text: str, default_port: int | None = None) -> Address:
    """Return the host and the port of `host:port`.

    :param default_port: the port to return if the address has none; None if the port is required.
    :raises ValueError: the text is not an address; the message begins with the text.

    >>> split_host_port("[::1]:9093"), split_host_port("[::1]", 9092), split_host_port("a", 9092)
    (('::1', 9093), ('::1', 9092), ('a', 9092))
    """
    if "://" in text:
        raise ValueError(f"{text!r} is not host:port; leave out {text.partition('://')[0]}://")
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or text.endswith("]")):
        host, port = text, str(default_port)
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= PORT_MAX):
        raise ValueError(f"{text!r} is not host:port, with a port from 0 to {PORT_MAX}")
    if ":" in host and not host.startswith("[") and not _is_ipv6(host):
        raise ValueError(f"{text!r} is not host:port; write an IPv6 address in brackets, for example [::1]:9092")
    return bare_host(host), int(port)


def split_listener(text: str) -> Address:
    """Return the host and the port of `host:port`, or of a port alone. The default host is 127.0.0.1.

    :raises ValueError: the text is not an address; the message begins with the text.

    >>> split_listener("9404"), split_listener("0.0.0.0:9404"), split_listener("[::1]:9404")
    (('127.0.0.1', 9404), ('0.0.0.0', 9404), ('::1', 9404))
    """
    host, _, port = text.rpartition(":")
    return split_host_port(text if host else f"127.0.0.1:{port}")
