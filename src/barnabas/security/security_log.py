"""The security log: one line for each failed authentication, refused request, and change of ACLs, users and quotas.

All lines go to the logger `barnabas.security.audit`, so an operator can send them to a file of their own. A line
consists of a text and fields, such as

    refused a request: principal=User:alice address=10.0.0.1:4711 listener=SASL_SSL api=Produce operation=WRITE ...

In JSON lines, the fields are keys. Clients choose many of the values, so values are escaped and cut. No value is a
secret. The number of lines that clients can cause is limited, for each client address and in total.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from barnabas.log_lines import LimitedLog, LogEvent, event
from barnabas.security.principal import Principal

log = logging.getLogger("barnabas.security.audit")

VALUE_CHARACTERS_MAX = 256
"""The maximum number of characters of a value, before it is escaped."""
LINES_MAX = 100
"""The maximum number of failed authentications, and of refused requests, that are logged in ten seconds.

`LimitedLog.LINES_MAX` is the limit for each client address.
"""
HOSTS_MAX = 1_000
"""The maximum number of client addresses whose lines are counted separately."""

_CHANGES = frozenset({LogEvent.ACLS_CHANGED, LogEvent.USERS_CHANGED, LogEvent.QUOTAS_CHANGED})


def write_line(what: LogEvent, text: str, **fields: object) -> None:
    """Write a line. Fields without a value are left out."""
    cut = {name: _cut(str(value)) for name, value in fields.items() if value not in (None, "")}
    level = logging.INFO if what in _CHANGES else logging.WARNING
    shown = " ".join(f"{name}={_escaped(value)}" for name, value in cut.items())
    log.log(level, "%s: %s", text, shown, extra={**event(what), "fields": cut})


class FairLimit:
    """Limits lines for each client address and in total, so that one client cannot hide the lines of others."""

    def __init__(self, now_s: Callable[[], float], what: str) -> None:
        self._now_s = now_s
        self._what = what
        self._total = LimitedLog(log, now_s, f"%d further {what} are not logged", LINES_MAX)
        self._by_host: dict[str, LimitedLog] = {}

    def admits(self, host: str) -> bool:
        """Count a line, and return whether it may be logged."""
        own = self._by_host.get(host)
        if own is None:
            if len(self._by_host) >= HOSTS_MAX:
                del self._by_host[next(iter(self._by_host))]
            others = f"%d further {self._what} from {_escaped(host).replace('%', '%%')} are not logged"
            own = self._by_host[host] = LimitedLog(log, self._now_s, others)
        return own.admits() and self._total.admits()


class HttpSecurityLog:
    """The lines of an HTTP server: the registry, or status pages. Any thread may use it.

    :param server: the name of the server in the lines.
    """

    def __init__(self, server: str, now_s: Callable[[], float]) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._failures = FairLimit(now_s, "failed authentications")
        self._refusals = FairLimit(now_s, "refused requests")

    def note_failed_authentication(self, address: str, user: str, reason: str) -> None:
        """Log a failed authentication.

        :param user: the name that the client gave; empty for a token or a certificate.
        """
        with self._lock:
            is_admitted = self._failures.admits(address)
        if is_admitted:
            write_line(
                LogEvent.AUTHENTICATION_FAILED,
                "failed to authenticate",
                user=user,
                address=address,
                listener=self._server,
                result="failed",
                reason=reason,
            )

    def note_refusal(self, principal: Principal, address: str, request: str, reason: str) -> None:
        """Log a request that the principal may not make.

        :param request: the method and the path.
        """
        with self._lock:
            is_admitted = self._refusals.admits(address)
        if is_admitted:
            write_line(
                LogEvent.REQUEST_REFUSED,
                "refused a request",
                principal=principal,
                address=address,
                listener=self._server,
                request=request,
                result="denied",
                rule=reason,
            )


def _cut(value: str) -> str:
    excess = len(value) - VALUE_CHARACTERS_MAX
    return value if excess <= 0 else f"{value[:VALUE_CHARACTERS_MAX]}... ({excess} more characters)"


def _escaped(value: str) -> str:
    r"""Return a value in one line; with quotes unless it is one word without quotes and equals signs.

    >>> _escaped("User:alice"), _escaped('a "b"\n')
    ('User:alice', '"a \\"b\\"\\n"')
    """
    if value.isprintable() and not any(each in value for each in ' "=\\'):
        return value
    shown = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else _code(each) for each in shown) + '"'


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
