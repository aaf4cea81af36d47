"""Basic and bearer authentication of HTTP requests (RFC 7617, RFC 6750), for the registry and the status pages.

A request contains a user name and a password, or a token. A function of the server proves them, for example by a SASL
login at a broker. `HttpAuthentication` remembers the outcome, so that not every request needs a proof:

- Proved credentials are valid for at most `REMEMBERED_S`, and not longer than the token.
- Refused credentials are refused again for `REFUSED_S` without a proof.
- An address whose proofs fail too often gets the status 429, until some time has passed.

Memory keeps credentials only as an HMAC with a random key of the process. All tables have a maximum size.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from barnabas.errors import AuthenticationError, BarnabasError
from barnabas.security.oauthbearer import is_token
from barnabas.security.principal import Principal, is_valid_name
from barnabas.security.scram import PASSWORD_BYTES_MAX
from barnabas.security.secrets import Secret

REMEMBERED_S = 60.0
"""The maximum time in seconds for which proved credentials are valid without another proof."""
REFUSED_S = 5.0
"""The time in seconds for which refused credentials are refused without another proof."""
REMEMBERED_MAX = 10_000
"""The maximum number of credentials, and of addresses, in memory."""
FAILURES_MAX = 20
"""The number of proofs of one address that may fail in quick succession."""
FAILURE_FORGOTTEN_S = 1.0
"""The time in seconds after which an address may fail once more."""
HEADER_CHARACTERS_MAX = 24 * 1024
KEY_BYTES = 32

CHALLENGE = 'Basic realm="barnabas", Bearer realm="barnabas"'
"""The header `WWW-Authenticate` of responses with the status 401."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class HttpCredentials(NamedTuple):
    """The credentials of a request: a user name and a password, or a token (then `user` is empty)."""

    user: str
    secret: Secret

    @property
    def is_token(self) -> bool:
        return not self.user


class HttpIdentity(NamedTuple):
    """The proved identity of a client.

    :param sees_cluster: True if the principal may describe the cluster, which its metrics do.
    :param lifetime_s: the remaining validity of the credentials in seconds.
    """

    principal: Principal
    sees_cluster: bool = False
    lifetime_s: float = REMEMBERED_S


class HttpRefusedError(BarnabasError):
    """A request is refused. The text is for the client.

    :ivar status: 401, 429 or 503.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def unauthorized() -> HttpRefusedError:
    """Return the only error for missing, malformed and wrong credentials."""
    return HttpRefusedError(401, "Unauthorized")


def parse_authorization(header: str | None) -> HttpCredentials:
    """Return the credentials in a header `Authorization`.

    :raises HttpRefusedError: there is no header, or it contains no valid credentials.

    >>> parse_authorization("Basic YWxpY2U6c2VjcmV0")
    HttpCredentials(user='alice', secret=[hidden])
    """
    if header is None or len(header) > HEADER_CHARACTERS_MAX:
        raise unauthorized()
    scheme, _, given = header.partition(" ")
    given = given.strip(" ")
    if scheme.lower() == "bearer" and is_token(given):
        return HttpCredentials("", Secret(given))
    if scheme.lower() != "basic":
        raise unauthorized()
    try:
        user, colon, password = base64.b64decode(given, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        raise unauthorized() from None
    size = len(password.encode("utf-8"))
    if not colon or not is_valid_name(user) or not 0 < size <= PASSWORD_BYTES_MAX or "\0" in password:
        raise unauthorized()
    return HttpCredentials(user, Secret(password))


class HttpAuthentication:
    """Remembers proved and refused credentials, and limits failures. Any thread may use it.

    :param now_s: returns monotonic seconds.
    :param report: called with the address, the user name (empty for a token) and the reason of each failed proof.
    """

    def __init__(self, now_s: Callable[[], float], report: Callable[[str, str, str], None]) -> None:
        self._now_s = now_s
        self._report = report
        self._key = secrets.token_bytes(KEY_BYTES)
        self._lock = threading.Lock()
        self._proved: OrderedDict[bytes, tuple[HttpIdentity, float]] = OrderedDict()
        """The identity of proved credentials, and the time at which it expires."""
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        """The time until which credentials are refused without a proof."""
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The failures of each address that count at a time: number and time."""

    def authenticate(
        self, header: str | None, address: str, prove: Callable[[HttpCredentials], HttpIdentity]
    ) -> HttpIdentity:
        """Return the identity of a request.

        :param prove: raises AuthenticationError for wrong credentials, and another BarnabasError if it cannot decide.
        :raises HttpRefusedError: the request is refused.
        """
        credentials = parse_authorization(header)
        known = self.known(credentials)
        if known is not None:
            return known
        self.begin(address)
        try:
            identity = prove(credentials)
        except BarnabasError as error:
            raise self.failed(credentials, address, error) from None
        self.proved(credentials, address, identity)
        return identity

    def known(self, credentials: HttpCredentials) -> HttpIdentity | None:
        """Return the identity of credentials that are already proved; None if they need a proof.

        :raises HttpRefusedError: the same credentials were refused a moment ago.
        """
        digest, now_s = self.digest(credentials), self._now_s()
        with self._lock:
            found = self._proved.get(digest)
            if found is not None and now_s < found[1]:
                self._proved.move_to_end(digest)
                return found[0]
            if now_s < self._refused.get(digest, 0.0):
                raise unauthorized()
        return None

    def begin(self, address: str) -> None:
        """Count a proof for an address, as if it had failed.

        :raises HttpRefusedError: too many proofs of the address have failed.
        """
        source, now_s = _source(address), self._now_s()
        with self._lock:
            count = self._failures_of(source, now_s)
            if count > FAILURES_MAX - 1:
                raise HttpRefusedError(429, "Too many failed authentications; try again later")
            _keep(self._failures, source, (count + 1, now_s))

    def proved(self, credentials: HttpCredentials, address: str, identity: HttpIdentity) -> None:
        """Remember credentials, and forget the proof of the address."""
        now_s = self._now_s()
        with self._lock:
            self._forget_proof(address, now_s)
            lifetime_s = min(REMEMBERED_S, identity.lifetime_s)
            if lifetime_s > 0:
                _keep(self._proved, self.digest(credentials), (identity, now_s + lifetime_s))

    def failed(self, credentials: HttpCredentials, address: str, error: BarnabasError) -> HttpRefusedError:
        """Remember and report a failed proof; return the error for the client."""
        if not isinstance(error, AuthenticationError):
            with self._lock:
                self._forget_proof(address, self._now_s())
            self._report(address, credentials.user, f"{error}; the client may try again")
            return HttpRefusedError(503, "The server cannot check the credentials now; try again later")
        with self._lock:
            digest = self.digest(credentials)
            self._proved.pop(digest, None)
            _keep(self._refused, digest, self._now_s() + REFUSED_S)
        self._report(address, credentials.user, str(error))
        return unauthorized()

    def digest(self, credentials: HttpCredentials) -> bytes:
        """Return the value that stands for credentials in memory."""
        user = credentials.user.encode("utf-8")
        secret = credentials.secret.reveal().encode("utf-8")
        return hmac.digest(self._key, len(user).to_bytes(4, "big") + user + secret, "sha256")

    def _forget_proof(self, address: str, now_s: float) -> None:
        source = _source(address)
        _keep(self._failures, source, (max(0.0, self._failures_of(source, now_s) - 1), now_s))

    def _failures_of(self, source: str, now_s: float) -> float:
        count, counted_s = self._failures.get(source, (0.0, now_s))
        return max(0.0, count - (now_s - counted_s) / FAILURE_FORGOTTEN_S)


def _keep(table: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > REMEMBERED_MAX:
        table.popitem(last=False)


def _source(address: str) -> str:
    """Return the network that counts as one address: a host of IPv6 usually owns a network of 64 bits.

    >>> _source("10.0.0.1"), _source("2001:db8::17")
    ('10.0.0.1', '2001:db8::/64')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))
