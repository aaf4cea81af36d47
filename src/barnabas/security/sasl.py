"""The interfaces of SASL mechanisms (RFC 4422): one object for each authentication."""

from __future__ import annotations

from typing import Protocol


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
