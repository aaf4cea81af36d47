"""The security log of a broker: failed authentications, refused requests, and changes of ACLs, users and quotas.

`barnabas.security.security_log` describes the lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.log_lines import LimitedLog, LogEvent
from barnabas.net.server_connection import Endpoints
from barnabas.security.acls import Operation
from barnabas.security.principal import Principal
from barnabas.security.security_log import FairLimit, log, write_line

CHANGES_MAX = 10_000
"""The maximum number of changes that are logged in ten seconds. Only administrators make changes."""


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
        self._failures = FairLimit(now_s, "failed authentications")
        self._refusals = FairLimit(now_s, "refused requests")
        self._changes = LimitedLog(log, now_s, "%d further changes are not logged", CHANGES_MAX)

    def note_failed_authentication(
        self, endpoints: Endpoints, listener: str, mechanism: str, reason: str, principal: Principal | None = None
    ) -> None:
        """Log a failed authentication.

        :param principal: the principal of an earlier authentication on the same connection.
        """
        if self._failures.admits(endpoints.host):
            write_line(
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
            write_line(
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
            write_line(
                what,
                "cannot change security settings" if error else "changed security settings",
                **source.fields,
                operation=operation,
                resource=resource,
                result="done" if error is None else getattr(code, "name", type(error).__name__),
                change=change,
            )
