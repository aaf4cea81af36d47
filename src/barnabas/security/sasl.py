"""The interfaces of SASL mechanisms (RFC 4422), and the client's side of a mechanism by name.

A server or a client is one object for each authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.errors import ConfigurationError
from barnabas.security.oauthbearer import OAuthBearerClient
from barnabas.security.plain import PlainClient
from barnabas.security.protocols import OAUTHBEARER, PLAIN, SASL_MECHANISMS
from barnabas.security.scram import ScramClient, ScramMechanism


class SaslServer(Protocol):
    """The server's side of one authentication."""

    @property
    def is_complete(self) -> bool:
        """True if the client has authenticated."""

    @property
    def principal(self) -> str:
        """The name of the authenticated principal.

        :raises AuthenticationError: the authentication is not complete.
        """

    @property
    def expires_ms(self) -> int | None:
        """The time at which the credentials expire, in ms since 1970; None if they do not expire."""

    def respond(self, message: bytes) -> bytes:
        """Process a message of the client; return the server's message.

        The call may take milliseconds: it belongs on a thread.

        :raises AuthenticationError: the authentication failed. The text is for the server's log, not for the client.
        """


class SaslClient(Protocol):
    """The client's side of one authentication."""

    @property
    def mechanism(self) -> str:
        """The SASL name of the mechanism."""

    @property
    def is_complete(self) -> bool:
        """True if the authentication has succeeded."""

    def first(self) -> bytes:
        """Return the first message."""

    def respond(self, message: bytes) -> bytes:
        """Process a message of the server; return the client's next message.

        The call may take milliseconds: it belongs on a thread.

        :raises AuthenticationError: the server refuses the client, or cannot prove its own identity.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslCredentials:
    """The credentials of a client: user name and password, or a token. The `repr` hides password and token."""

    username: str = ""
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


def new_sasl_client(mechanism: str, credentials: SaslCredentials, new_nonce: Callable[[], str]) -> SaslClient:
    """Return the client's side of a mechanism for one authentication.

    :param mechanism: one of `SASL_MECHANISMS`.
    :param new_nonce: returns random text: at least 16 printable ASCII characters without a comma.
    :raises ConfigurationError: the mechanism is unknown, or the credentials lack what it needs.
    """
    if mechanism not in SASL_MECHANISMS:
        raise ConfigurationError(f"SASL mechanism {mechanism!r} is not supported; use {', '.join(SASL_MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        if credentials.token is None:
            raise ConfigurationError("OAUTHBEARER needs a token")
        return OAuthBearerClient(credentials.token, credentials.extensions)
    if not credentials.username or credentials.password is None:
        raise ConfigurationError(f"{mechanism} needs a user name and a password")
    if mechanism == PLAIN:
        return PlainClient(credentials.username, credentials.password)
    return ScramClient(ScramMechanism(mechanism), credentials.username, credentials.password, new_nonce())
