"""PLAIN (RFC 4616): one message with the user name and the password, for connections with TLS.

The server checks the password against the user's SCRAM credentials. It does the same work for each user: it hashes the
password once for each SCRAM mechanism, with a decoy in place of a missing credential.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.principal import is_valid_name
from barnabas.security.protocols import PLAIN
from barnabas.security.scram import (
    PASSWORD_BYTES_MAX,
    FindCredential,
    ScramDecoys,
    ScramMechanism,
    password_bytes,
    password_matches,
)

MESSAGE_BYTES_MAX = 4096

REFUSED = "the user name or the password is wrong, or the PLAIN message is invalid"
"""The text of all refusals of a `PlainServer`."""


class PlainMessage(NamedTuple):
    """A user name and a password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r})"


def encode_plain(user: str, password: str) -> bytes:
    """Return the client's message.

    :raises ConfigurationError: the user name or the password is not valid.
    """
    if not is_valid_name(user):
        raise ConfigurationError("a SASL user name must consist of printable characters")
    return b"\0" + user.encode("utf-8") + b"\0" + password_bytes(password)


def parse_plain(message: bytes) -> PlainMessage:
    """Return the user name and the password of a client's message.

    :raises AuthenticationError: the message is invalid, or the client wants to act as another user. The text is always
        `REFUSED`.
    """
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationError(REFUSED)
    try:
        authorization, user, password = message.decode("utf-8").split("\0")
    except ValueError:
        raise AuthenticationError(REFUSED) from None
    is_short = 0 < len(password.encode("utf-8")) <= PASSWORD_BYTES_MAX
    if not is_valid_name(user) or authorization not in {"", user} or not is_short:
        raise AuthenticationError(REFUSED)
    return PlainMessage(user, password)


class PlainServer:
    """The server's side of one authentication.

    :param find: returns the stored credential of a user for a SCRAM mechanism.
    :param decoys: derives the credentials that the server checks in place of missing ones.
    """

    def __init__(self, find: FindCredential, decoys: ScramDecoys) -> None:
        self._find = find
        self._decoys = decoys
        self._user = ""
        self._is_used = False
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """True if the password belongs to the user."""
        return self._is_complete

    @property
    def principal(self) -> str:
        """The name of the user.

        :raises AuthenticationError: the authentication is not complete.
        """
        if not self._is_complete:
            raise AuthenticationError(REFUSED)
        return self._user

    @property
    def expires_ms(self) -> None:
        """A password has no end of its validity."""
        return None

    def respond(self, message: bytes) -> bytes:
        """Check the client's only message; return an empty one.

        :raises AuthenticationError: the server refuses the client. The text is always `REFUSED`.
        """
        is_used, self._is_used, self._is_complete = self._is_used, True, False
        if is_used:
            raise AuthenticationError(REFUSED)
        user, password = parse_plain(message)
        checks = [self._matches(mechanism, user, password) for mechanism in ScramMechanism]
        if not any(checks):
            raise AuthenticationError(REFUSED)
        self._user, self._is_complete = user, True
        return b""

    def _matches(self, mechanism: ScramMechanism, user: str, password: str) -> bool:
        decoy = self._decoys.credential(mechanism, user)
        found = self._find(mechanism, user)
        matches = password_matches(found or decoy, mechanism, password)
        return matches and found is not None


class PlainClient:
    """The client's side of one authentication.

    :raises ConfigurationError: the user name or the password is not valid.
    """

    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._message = encode_plain(user, password)
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """True if the server has accepted the password."""
        return self._is_complete

    def first(self) -> bytes:
        """Return the only message."""
        return self._message

    def respond(self, message: bytes) -> bytes:
        """Process the server's empty response.

        :raises AuthenticationError: the response is not empty.
        """
        if message or self._is_complete:
            raise AuthenticationError("the server continues a PLAIN authentication, which has only one message")
        self._is_complete = True
        return b""
