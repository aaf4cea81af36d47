"""The authentication of clients with SASL (KIP-43, KIP-152, KIP-368).

A client sends SaslHandshake with its mechanism, then SaslAuthenticate until the mechanism is complete. After version 0
of SaslHandshake, a client sends the messages of the mechanism as frames without a request header instead.

Before that, a client may only send these two requests and ApiVersions; any other request ends the connection. The steps
of a mechanism run on threads, since a check of a password or a token may take milliseconds. The response to a failed
authentication is delayed, always has the same text, and ends the connection.

A session ends when its token expires or after `connections.max.reauth.ms`, if either applies. The client then
authenticates again on the same connection, as the same principal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.broker.fair_threads import FairThreads
from barnabas.broker.security_log import SecurityLog
from barnabas.clock import Clock
from barnabas.errors import ApiError, AuthenticationError, ErrorCode
from barnabas.net.server_connection import Endpoints
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.security.sasl import SaslServer


class AuthenticationCounts:
    """The number of authentications at one listener since the start.

    :ivar successful: the completed first authentications of connections. `repeated`: the further ones of the same
        connections. `failed`: the failed ones.
    """

    __slots__ = ("failed", "repeated", "successful")

    def __init__(self) -> None:
        self.successful = self.repeated = self.failed = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAuthentication:
    """The authentication at one SASL listener.

    :param mechanisms: creates the server side of each offered mechanism, by name in upper case.
    :param threads: run the steps of mechanisms.
    :param listener_name: the name of the listener, for the log.
    :param security_log: logs failed authentications.
    :param check: raises AuthenticationError for a principal that the listener does not serve.
    :param session_ms_max: the maximum lifetime of a session in ms; 0 for no limit.
    :param failure_delay_s: the delay of the response to a failed authentication, in seconds.
    """

    mechanisms: Mapping[str, Callable[[], SaslServer]]
    threads: FairThreads
    clock: Clock
    listener_name: str
    security_log: SecurityLog
    check: Callable[[Principal], None]
    session_ms_max: int = 0
    failure_delay_s: float = 0.1
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)

    def of_connection(self, endpoints: Endpoints) -> ConnectionAuthentication:
        """Return the state of a new connection."""
        return ConnectionAuthentication(self, endpoints)


class ConnectionAuthentication:
    """The authentication of one connection. Used from the event loop's thread."""

    __slots__ = (
        "_endpoints",
        "_mechanism",
        "_of_listener",
        "_server",
        "_share",
        "principal",
        "session_ends_s",
        "takes_raw_frames",
    )

    def __init__(self, of_listener: ListenerAuthentication, endpoints: Endpoints) -> None:
        self._of_listener = of_listener
        self._endpoints = endpoints
        self._share = of_listener.threads.share_of(endpoints.host)
        self._mechanism = ""
        self._server: SaslServer | None = None
        self.principal: Principal = ANONYMOUS
        self.session_ends_s = 0.0
        """The monotonic time at which the session ends; 0 without a session, infinite for an unlimited one."""
        self.takes_raw_frames = False
        """True if the next frames are messages of the mechanism without a request header."""

    def is_valid(self, now_s: float) -> bool:
        """Return whether the client has authenticated, and its session has not ended."""
        return now_s < self.session_ends_s

    @property
    def mechanisms(self) -> list[str]:
        """The offered mechanisms."""
        return list(self._of_listener.mechanisms)

    def begin(self, mechanism: str, *, raw: bool) -> None:
        """Begin an authentication, or begin another one.

        :param raw: True if the client sends messages without a request header.
        :raises ApiError: UNSUPPORTED_SASL_MECHANISM, or ILLEGAL_SASL_STATE in the middle of an authentication, and for
            another mechanism or raw messages in a second authentication.
        """
        if self._server is not None:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "an authentication is in progress")
        new_server = self._of_listener.mechanisms.get(mechanism)
        if new_server is None:
            self._report("", "the client asked for another mechanism")
            offered = ", ".join(self.mechanisms)
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"this listener offers {offered}")
        if self.session_ends_s and mechanism != self._mechanism:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "a client must authenticate again with the same mechanism")
        if self.session_ends_s and raw:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "a client must authenticate again with SaslAuthenticate")
        self._mechanism, self._server, self.takes_raw_frames = mechanism, new_server(), raw

    async def step(self, message: bytes) -> tuple[bytes, int]:
        """Process a message of the mechanism.

        :returns: the response, and the lifetime of the session in ms: 0 if it has no end or does not exist yet.
        :raises ApiError: ILLEGAL_SASL_STATE if no authentication is in progress.
        :raises AuthenticationError: the authentication failed; raised after the delay.
        """
        server = self._server
        if server is None:
            raise ApiError(ErrorCode.ILLEGAL_SASL_STATE, "no authentication is in progress; SaslHandshake comes first")
        try:
            response = await self._of_listener.threads.run(self._share, server.respond, message)
            if not server.is_complete:
                return response, 0
            principal = Principal("User", server.principal)
            self._check_same_principal(principal)
            self._of_listener.check(principal)
        except AuthenticationError as error:
            self._server, self.session_ends_s = None, 0.0
            self._of_listener.counts.failed += 1
            self._report(self._mechanism, str(error))
            await asyncio.sleep(self._of_listener.failure_delay_s)
            raise
        if self.session_ends_s:
            self._of_listener.counts.repeated += 1
        else:
            self._of_listener.counts.successful += 1
        self.principal = principal
        self._server, self.takes_raw_frames = None, False
        lifetime_ms = self._lifetime_ms(server)
        self.session_ends_s = self._of_listener.clock.monotonic() + lifetime_ms / 1000 if lifetime_ms else float("inf")
        return response, lifetime_ms

    def _report(self, mechanism: str, reason: str) -> None:
        principal = None if self.principal == ANONYMOUS else self.principal
        self._of_listener.security_log.note_failed_authentication(
            self._endpoints, self._of_listener.listener_name, mechanism, reason, principal
        )

    def _check_same_principal(self, principal: Principal) -> None:
        if self.session_ends_s and principal != self.principal:
            raise AuthenticationError("a connection cannot change its principal")

    def _lifetime_ms(self, server: SaslServer) -> int:
        """Return the lifetime of the session in ms; 0 for no limit."""
        limits = [self._of_listener.session_ms_max] if self._of_listener.session_ms_max else []
        if server.expires_ms is not None:
            limits.append(max(1, server.expires_ms - self._of_listener.clock.time_ms()))
        return min(limits, default=0)
