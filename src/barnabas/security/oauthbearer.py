"""OAUTHBEARER (RFC 7628, KIP-255): one message with a token, and extensions (KIP-342).

If the server refuses the token, it responds with an error in JSON. The client responds with the byte 0x01, and the
authentication fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.principal import is_valid_name
from barnabas.security.protocols import OAUTHBEARER

TOKEN_BYTES_MAX = 16 * 1024
MESSAGE_BYTES_MAX = 24 * 1024
EXTENSIONS_MAX = 32

SEPARATOR = b"\x01"
INVALID_TOKEN = b'{"status":"invalid_token"}'
"""The server's response to a token that it refuses."""

REFUSED = "the OAUTHBEARER message is invalid"
_TOKEN = re.compile(r"[-_~+/.A-Za-z0-9]++=*+")  # without backtracking: clients send tokens before they authenticate
_AUTHORIZATION = re.compile(rf"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>{_TOKEN.pattern})")
_HEADER = re.compile(r"[ny],(?:a=(?P<authorization>(?:[^,=\0\x01]|=2C|=3D)+))?,")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH = "auth"


@dataclass(frozen=True, slots=True)
class TokenMessage:
    """The client's message: the token, the name that the client wants to act as, and extensions.

    :param authorization: empty, or a name that must be the token's principal.
    """

    token: str = field(repr=False)
    authorization: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class AcceptedToken(NamedTuple):
    """The principal of a token that the server has accepted, and the end of its validity.

    :param expires_ms: in ms since 1970.
    """

    principal: str
    expires_ms: int


ValidateToken = Callable[[str], AcceptedToken]
"""Checks a token. It raises AuthenticationError for a token that it refuses."""


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token.

    >>> is_token("eyJhbGciOiJFUzI1NiJ9.e30.c2ln"), is_token(""), is_token("a b")
    (True, False, False)
    """
    return len(text) <= TOKEN_BYTES_MAX and _TOKEN.fullmatch(text) is not None


def encode_token(token: str, extensions: Mapping[str, str] | None = None, authorization: str = "") -> bytes:
    """Return the client's message.

    :param authorization: the name that the token must belong to; empty to accept any name.
    :raises ConfigurationError: the token or an extension is invalid. The error does not contain the token.
    """
    if not is_token(token):
        raise ConfigurationError(f"an OAuth token has 1 to {TOKEN_BYTES_MAX} characters: letters, digits and -_~+/.=")
    pairs = {_AUTH: f"Bearer {token}"}
    for key, value in (extensions or {}).items():
        if key == _AUTH or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigurationError(f"the SASL extension {key!r} has an invalid name or value")
        pairs[key] = value
    if authorization and not is_valid_name(authorization):
        raise ConfigurationError("the name of a token must consist of printable characters")
    escaped = authorization.replace("=", "=3D").replace(",", "=2C")
    header = f"n,a={escaped},\x01" if authorization else "n,,\x01"
    message = header + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01"
    if len(message) > MESSAGE_BYTES_MAX or len(pairs) > EXTENSIONS_MAX:
        raise ConfigurationError("the OAuth token and the SASL extensions are too long")
    return message.encode("utf-8")


def parse_token(message: bytes) -> TokenMessage:
    """Return the parts of a client's message.

    :raises AuthenticationError: the message is invalid. The text is always `REFUSED`.
    """
    if len(message) > MESSAGE_BYTES_MAX or message.count(SEPARATOR) > EXTENSIONS_MAX + 2:
        raise AuthenticationError(REFUSED)
    try:
        header, *pairs, last, end = message.decode("utf-8").split("\x01")
    except ValueError:
        raise AuthenticationError(REFUSED) from None
    match = _HEADER.fullmatch(header)
    if match is None or last or end:
        raise AuthenticationError(REFUSED)
    values = dict(_pair(each) for each in pairs)
    authorization = _AUTHORIZATION.fullmatch(values.pop(_AUTH, ""))
    if len(values) + 1 != len(pairs) or authorization is None or authorization["scheme"].lower() != "bearer":
        raise AuthenticationError(REFUSED)
    if len(authorization["token"]) > TOKEN_BYTES_MAX:
        raise AuthenticationError(REFUSED)
    name = (match["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
    return TokenMessage(authorization["token"], name, values)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
        raise AuthenticationError(REFUSED)
    return key, value


class OAuthBearerServer:
    """The server's side of one authentication. The server ignores extensions.

    :param validate: checks the token.
    """

    def __init__(self, validate: ValidateToken) -> None:
        self._validate = validate
        self._accepted: AcceptedToken | None = None
        self._refusal: AuthenticationError | None = None
        self._is_used = False

    @property
    def is_complete(self) -> bool:
        """True if the server has accepted the token."""
        return self._accepted is not None

    @property
    def principal(self) -> str:
        """The principal of the token.

        :raises AuthenticationError: the authentication is not complete.
        """
        if self._accepted is None:
            raise AuthenticationError(REFUSED)
        return self._accepted.principal

    @property
    def expires_ms(self) -> int | None:
        """The time at which the token expires, in ms since 1970."""
        return None if self._accepted is None else self._accepted.expires_ms

    def respond(self, message: bytes) -> bytes:
        """Check the client's message; return an empty one, or `INVALID_TOKEN` for a refused token.

        :raises AuthenticationError: the message is invalid, or the client responds to the refusal. The text is the
            reason, without the token.
        """
        is_used, self._is_used, self._accepted = self._is_used, True, None
        if is_used:
            refusal, self._refusal = self._refusal, None
            raise refusal or AuthenticationError(REFUSED)
        parsed = parse_token(message)
        try:
            self._accepted = self._check(parsed)
        except AuthenticationError as error:
            self._refusal = error.with_traceback(None)
            return INVALID_TOKEN
        return b""

    def _check(self, message: TokenMessage) -> AcceptedToken:
        accepted = self._validate(message.token)
        if message.authorization not in {"", accepted.principal} or not is_valid_name(accepted.principal):
            raise AuthenticationError("the client wants to act as another principal than the token's")
        return accepted


class OAuthBearerClient:
    """The client's side of one authentication.

    :param extensions: Kafka's SASL extensions; brokers may use or ignore them.
    :param authorization: the name that the token must belong to, or the server refuses it; empty for any name.
    :raises ConfigurationError: the token or an extension is invalid.
    """

    mechanism = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None, authorization: str = "") -> None:
        self._message = encode_token(token, extensions, authorization)
        self._is_complete = False
        self._is_refused = False

    @property
    def is_complete(self) -> bool:
        """True if the server has accepted the token."""
        return self._is_complete

    def first(self) -> bytes:
        """Return the message with the token."""
        return self._message

    def respond(self, message: bytes) -> bytes:
        """Process the server's response: empty if it accepts the token, else an error in JSON.

        :returns: an empty message, or 0x01 after an error. The server then fails the authentication.
        :raises AuthenticationError: the server sends a further message.
        """
        if self._is_complete or self._is_refused:
            self._is_complete = False
            raise AuthenticationError("the server sent a further OAUTHBEARER message after the last one")
        if not message:
            self._is_complete = True
            return b""
        self._is_refused = True
        return SEPARATOR
