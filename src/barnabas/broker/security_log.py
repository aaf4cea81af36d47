"""The security log: one line for each failed authentication, refused request, and change of ACLs, users and quotas.

All lines go to the logger `barnabas.security.audit`, so an operator can send them to a file of their own. A line
consists of a text and fields, such as

    refused a request: principal=User:alice address=10.0.0.1:4711 listener=SASL_SSL api=Produce operation=WRITE ...

In JSON lines, the fields are keys. Clients choose many of the values, so values are escaped and cut. No value is a
secret. The number of lines that clients can cause is limited, for each client address and in total.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas.log_lines import LimitedLog, LogEvent, event
from barnabas.net.server_connection import Endpoints
from barnabas.security.acls import Operation
from barnabas.security.principal import Principal

log = logging.getLogger("barnabas.security.audit")

VALUE_CHARACTERS_MAX = 256
"""The maximum number of characters of a value, before it is escaped."""
LINES_MAX = 100
"""The maximum number of failed authentications, and of refused requests, that are logged in ten seconds.

`LimitedLog.LINES_MAX` is the limit for each client address.
"""
CHANGES_MAX = 10_000
"""The maximum number of changes that are logged in ten seconds. Only administrators make changes."""
HOSTS_MAX = 1_000
"""The maximum number of client addresses whose lines are counted separately."""


class RequestSource(NamedTuple):
    """The sender of a request, and the API."""

    principal: Principal
    endpoints: Endpoints
    listener: str
    client_id: str | None
    api: str

    @property
    def fields(self) -> dict[str, object]:
        """The fields of a line."""
        return {
            "principal": self.principal,
            "address": self.endpoints.address,
            "listener": self.listener,
            "client_id": self.client_id,
            "api": self.api,
        }


class SecurityLog:
    """Writes the security log. Used from the event loop's thread.

    :param now_s: returns monotonic seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._failures = _FairLimit(now_s, "failed authentications")
        self._refusals = _FairLimit(now_s, "refused requests")
        self._changes = LimitedLog(log, now_s, "%d further changes are not logged", CHANGES_MAX)

    def note_failed_authentication(
        self, endpoints: Endpoints, listener: str, mechanism: str, reason: str, principal: Principal | None = None
    ) -> None:
        """Log a failed authentication.

        :param principal: the principal of an earlier authentication on the same connection.
        """
        if self._failures.admits(endpoints.host):
            self._write(
                LogEvent.AUTHENTICATION_FAILED,
                "failed to authenticate",
                principal=principal,
                address=endpoints.address,
                listener=listener,
                mechanism=mechanism,
                result="failed",
                reason=reason,
            )

    def note_refusal(self, source: RequestSource, operation: Operation, resource: str, rule: str) -> None:
        """Log a request, or a part of a request, that the principal may not make.

        :param resource: the resource, such as `topic:clicks`.
        :param rule: the deciding rule in words.
        """
        if self._refusals.admits(source.endpoints.host):
            self._write(
                LogEvent.REQUEST_REFUSED,
                "refused a request",
                **source.fields,
                operation=operation.name,
                resource=resource,
                result="denied",
                rule=rule,
            )

    def note_change(
        self,
        what: LogEvent,
        source: RequestSource,
        operation: str,
        resource: str,
        error: Exception | None,
        change: str = "",
    ) -> None:
        """Log a requested change of ACLs, users or quotas.

        :param operation: the kind of change, such as `create` or `delete`.
        :param error: the reason why the change failed; None if it is in force.
        :param change: the new values, which must not be secrets.
        """
        if self._changes.admits():
            code = getattr(error, "code", None)
            self._write(
                what,
                "cannot change security settings" if error else "changed security settings",
                **source.fields,
                operation=operation,
                resource=resource,
                result="done" if error is None else getattr(code, "name", type(error).__name__),
                change=change,
            )

    def _write(self, what: LogEvent, text: str, **fields: object) -> None:
        cut = {name: _cut(str(value)) for name, value in fields.items() if value not in (None, "")}
        level = logging.INFO if what in _CHANGES else logging.WARNING
        shown = " ".join(f"{name}={_escaped(value)}" for name, value in cut.items())
        log.log(level, "%s: %s", text, shown, extra={**event(what), "fields": cut})


_CHANGES = frozenset({LogEvent.ACLS_CHANGED, LogEvent.USERS_CHANGED, LogEvent.QUOTAS_CHANGED})


class _FairLimit:
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
