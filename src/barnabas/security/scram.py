"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), with Kafka's stored credentials (KIP-84, KIP-554).

`ScramServer` and `ScramClient` are the two ends of one exchange:

    client-first   n,,n=alice,r=NONCE
    server-first   r=NONCE+MORE,s=SALT,i=4096
    client-final   c=biws,r=NONCE+MORE,p=PROOF
    server-final   v=SIGNATURE

As in Kafka, user names and passwords are their UTF-8 bytes, without SASLprep, and channel binding is not supported. For
an unknown user, the server continues with a decoy credential, so neither the messages nor the time of the exchange
reveal the names of users. All refusals of the server have one text.

`credential_from_password`, `salted_password`, `password_matches` and `ScramClient.respond` hash a password thousands of
times: they take milliseconds, and belong on a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.principal import is_valid_name

ITERATIONS_MIN = 4096
NEW_ITERATIONS_MAX = 16_384
"""The maximum number of iterations of a new credential, as in Kafka."""
ITERATIONS_MAX = 1_000_000
"""The maximum number of iterations that a client accepts, and of a stored credential."""
SALT_BYTES_MAX = 256
SALT_BYTES = 16
"""The size of the salts of new credentials and of decoys."""
DECOY_SECRET_BYTES_MIN = 16
PASSWORD_BYTES_MAX = 1024
"""The maximum size of a password in bytes of UTF-8."""
MESSAGE_BYTES_MAX = 4096
NONCE_CHARACTERS_MIN = 16

REFUSED = "the user name or the password is wrong, or the SCRAM message is invalid"
"""The text of all refusals of a `ScramServer`."""


class ScramMechanism(Enum):
    """A mechanism. The value is its SASL name.

    >>> ScramMechanism("SCRAM-SHA-256").wire_type
    1
    """

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def wire_type(self) -> int:
        """The number of the mechanism in Describe- and AlterUserScramCredentials."""
        return 1 if self is ScramMechanism.SHA_256 else 2

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The size of the keys and of a salted password."""
        return 32 if self is ScramMechanism.SHA_256 else 64

    @classmethod
    def of_wire_type(cls, wire_type: int) -> ScramMechanism | None:
        """Return the mechanism with this number; None for an unknown number."""
        return next((each for each in cls if each.wire_type == wire_type), None)


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """The values that a server stores for a user and a mechanism, instead of the password.

    A copy of a credential is enough to pretend to be the server, and to guess passwords: its `repr` hides it.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def text(self) -> str:
        """Return the text that Kafka stores in ZooKeeper."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, text: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the credential of a text that `text` or Kafka has written.

        :raises ConfigurationError: the text has another form, or a value is out of bounds. The error does not contain
            the text.
        """
        fields = dict(part.partition("=")[::2] for part in text.split(",", maxsplit=4))
        if fields.keys() != {"salt", "stored_key", "server_key", "iterations"} or text.count(",") != 3:
            raise ConfigurationError("a SCRAM credential has the fields salt, stored_key, server_key and iterations")
        if len(text) > MESSAGE_BYTES_MAX or not re.fullmatch(r"[1-9][0-9]{0,6}", fields["iterations"], re.ASCII):
            raise ConfigurationError("a SCRAM credential is too long, or its iterations are no number")
        try:
            salt, stored_key, server_key = (
                _decoded(fields[name].encode("ascii")) for name in ("salt", "stored_key", "server_key")
            )
        except ValueError:
            raise ConfigurationError("a SCRAM credential has a salt or a key that is not Base64") from None
        if len(stored_key) != mechanism.key_bytes or len(server_key) != mechanism.key_bytes:
            raise ConfigurationError(f"the keys of a {mechanism.value} credential have {mechanism.key_bytes} bytes")
        iterations = int(fields["iterations"])
        check_salt_and_iterations(salt, iterations, ITERATIONS_MAX)
        return cls(salt, stored_key, server_key, iterations)


def check_salt_and_iterations(salt: bytes, iterations: int, iterations_max: int = NEW_ITERATIONS_MAX) -> None:
    """Check the public parts of a credential.

    :raises ConfigurationError: a value is out of bounds.
    """
    if not ITERATIONS_MIN <= iterations <= iterations_max:
        raise ConfigurationError(f"SCRAM iterations must be between {ITERATIONS_MIN} and {iterations_max}")
    if not 1 <= len(salt) <= SALT_BYTES_MAX:
        raise ConfigurationError(f"a SCRAM salt must have 1 to {SALT_BYTES_MAX} bytes")


def credential_from_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Return a new credential.

    :raises ConfigurationError: an argument is out of bounds.
    """
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_from_salted_password(mechanism, salted, salt, iterations)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> bytes:
    """Return the hash of a password that AlterUserScramCredentials contains.

    :raises ConfigurationError: an argument is out of bounds.
    """
    check_salt_and_iterations(salt, iterations)
    return _salted_password(mechanism, password_bytes(password), salt, iterations)


def credential_from_salted_password(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return a new credential from the fields of AlterUserScramCredentials.

    :raises ConfigurationError: an argument is out of bounds.
    """
    check_salt_and_iterations(salt, iterations)
    if len(salted_password) != mechanism.key_bytes:
        raise ConfigurationError(f"a salted password for {mechanism.value} has {mechanism.key_bytes} bytes")
    stored_key = _hash(mechanism, _hmac(mechanism, salted_password, b"Client Key"))
    return ScramCredential(salt, stored_key, _hmac(mechanism, salted_password, b"Server Key"), iterations)


def password_matches(credential: ScramCredential, mechanism: ScramMechanism, password: str) -> bool:
    """Return whether the credential belongs to this password. The time does not depend on the result."""
    try:
        given = password_bytes(password)
        is_possible = True
    except ConfigurationError:
        given, is_possible = b"", False
    salted = _salted_password(mechanism, given, credential.salt, credential.iterations)
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return hmac.compare_digest(stored_key, credential.stored_key) and is_possible


def password_bytes(password: str) -> bytes:
    """Return the bytes of a password.

    :raises ConfigurationError: the password is empty, longer than `PASSWORD_BYTES_MAX`, contains U+0000, or is no valid
        Unicode.
    """
    try:
        encoded = password.encode("utf-8")
    except UnicodeEncodeError:
        encoded = b""
    if not 1 <= len(encoded) <= PASSWORD_BYTES_MAX or b"\0" in encoded:
        raise ConfigurationError(f"a password must have 1 to {PASSWORD_BYTES_MAX} bytes of UTF-8, without U+0000")
    return encoded


@dataclass(frozen=True, slots=True, repr=False)
class ScramDecoys:
    """Derives credentials for unknown users. No password belongs to them.

    :param secret: random bytes. All brokers of a cluster need the same secret, also after a restart: otherwise the
        salts of an unknown user differ.
    """

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < DECOY_SECRET_BYTES_MIN:
            raise ConfigurationError(f"the secret of SCRAM decoys needs at least {DECOY_SECRET_BYTES_MIN} bytes")

    def __repr__(self) -> str:
        return "ScramDecoys()"

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return the decoy of a user, the same at each call. It looks like a new credential with the default values."""
        salt = self._derived(mechanism, user, "salt", SALT_BYTES)
        stored_key = self._derived(mechanism, user, "stored key", mechanism.key_bytes)
        server_key = self._derived(mechanism, user, "server key", mechanism.key_bytes)
        return ScramCredential(salt, stored_key, server_key, ITERATIONS_MIN)

    def _derived(self, mechanism: ScramMechanism, user: str, purpose: str, size: int) -> bytes:
        label = f"{mechanism.value}\0{purpose}\0{user}"
        return hmac.digest(self.secret, label.encode("utf-8"), "sha512")[:size]


FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]
"""Returns the credential of a user for a mechanism; None if there is none."""

_NAME = r"(?:[^,=\0]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authorization>{_NAME}))?,)(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]*){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<header>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:v=(?P<signature>{_BASE64})|e=(?P<error>[^,=\0]+)){_EXTENSIONS}")
_REFUSED_EXTENSION = re.compile(r",(?:tokenauth|m)=")


class ScramServer:
    """The server's side of one authentication. It cannot be used again, so a replay of its messages fails.

    :param find: returns the stored credential.
    :param decoys: derives the credentials of unknown users.
    :param nonce: random text, new for each server: at least `NONCE_CHARACTERS_MIN` printable ASCII characters without
        a comma.
    """

    def __init__(self, mechanism: ScramMechanism, find: FindCredential, decoys: ScramDecoys, nonce: str) -> None:
        _check_nonce(nonce)
        self._mechanism = mechanism
        self._find = find
        self._decoys = decoys
        self._nonce = nonce
        self._next: Callable[[str], bytes] | None = self._first
        self._user = ""
        self._is_known = False
        self._credential = ScramCredential(b"", b"", b"", 0)
        self._header, self._client_first_bare, self._server_first = b"", "", ""
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """True if the client has proved that it knows the password."""
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
        """Process a message of the client; return the server's.

        :raises AuthenticationError: the server refuses the client. Its text is always `REFUSED`.
        """
        step, self._next = self._next, None
        if step is None:
            self._is_complete = False
            raise AuthenticationError(REFUSED)
        return step(_text_of(message, REFUSED))

    def _first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None or _REFUSED_EXTENSION.search(match["extensions"]):
            raise AuthenticationError(REFUSED)
        self._user = _user_of(match["user"])
        if not is_valid_name(self._user) or match["authorization"] not in {None, match["user"]}:
            raise AuthenticationError(REFUSED)
        decoy = self._decoys.credential(self._mechanism, self._user)
        found = self._find(self._mechanism, self._user)
        self._is_known = found is not None and len(found.stored_key) == self._mechanism.key_bytes
        self._credential = found if found is not None and self._is_known else decoy
        self._header = match["header"].encode("utf-8")
        self._client_first_bare = match["bare"]
        self._nonce = match["nonce"] + self._nonce
        salt, iterations = _base64(self._credential.salt), self._credential.iterations
        self._server_first = f"r={self._nonce},s={salt},i={iterations}"
        self._next = self._final
        return self._server_first.encode("utf-8")

    def _final(self, text: str) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationError(REFUSED)
        has_header = hmac.compare_digest(match["header"].encode(), _base64(self._header).encode())
        has_nonce = hmac.compare_digest(match["nonce"].encode(), self._nonce.encode())
        proof = _base64_of(match["proof"], REFUSED)
        if not has_header or not has_nonce or len(proof) != self._mechanism.key_bytes:
            raise AuthenticationError(REFUSED)
        signed = f"{self._client_first_bare},{self._server_first},{match['without_proof']}".encode()
        credential = self._credential
        client_key = _xor(proof, _hmac(self._mechanism, credential.stored_key, signed))
        is_right = hmac.compare_digest(_hash(self._mechanism, client_key), credential.stored_key)
        signature = _hmac(self._mechanism, credential.server_key, signed)
        if not is_right or not self._is_known:
            raise AuthenticationError(REFUSED)
        self._is_complete = True
        return f"v={_base64(signature)}".encode("ascii")


class ScramClient:
    """The client's side of one authentication. It also verifies that the server knows the credential.

    :param nonce: random text, new for each client: at least `NONCE_CHARACTERS_MIN` printable ASCII characters without
        a comma.
    :raises ConfigurationError: the user name or the password is not valid.
    """

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        _check_nonce(nonce)
        if not is_valid_name(user):
            raise ConfigurationError("a SASL user name must consist of printable characters")
        self.mechanism = mechanism.value
        self._scram = mechanism
        self._password = password_bytes(password)
        self._nonce = nonce
        self._client_first_bare = f"n={_escaped_name(user)},r={nonce}"
        self._signature = b""
        self._next: Callable[[str], bytes] | None = self._final
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """True if the server has accepted the client and has proved its own identity."""
        return self._is_complete

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._client_first_bare}".encode()

    def respond(self, message: bytes) -> bytes:
        """Process a message of the server; return the client's next message, empty after the last one.

        :raises AuthenticationError: the message is invalid, demands too much, or does not come from a server that knows
            the credential.
        """
        step, self._next = self._next, None
        if step is None:
            self._is_complete = False
            raise AuthenticationError("the server sent a further SCRAM message after the last one")
        return step(_text_of(message, "the server's SCRAM message is too long or not UTF-8"))

    def _final(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationError("the server's first SCRAM message is invalid")
        nonce, digits = match["nonce"], match["iterations"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationError("the server's SCRAM nonce does not extend the client's nonce")
        if len(digits) > len(str(ITERATIONS_MAX)) or not ITERATIONS_MIN <= int(digits) <= ITERATIONS_MAX:
            raise AuthenticationError(f"SCRAM iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
        salt = _base64_of(match["salt"], "the server's SCRAM salt is not Base64")
        if len(salt) > SALT_BYTES_MAX:
            raise AuthenticationError(f"the server's SCRAM salt has more than {SALT_BYTES_MAX} bytes")
        without_proof = f"c=biws,r={nonce}"  # biws is the Base64 of n,,
        signed = f"{self._client_first_bare},{text},{without_proof}".encode()
        salted = _salted_password(self._scram, self._password, salt, int(digits))
        client_key = _hmac(self._scram, salted, b"Client Key")
        proof = _xor(client_key, _hmac(self._scram, _hash(self._scram, client_key), signed))
        self._signature = _hmac(self._scram, _hmac(self._scram, salted, b"Server Key"), signed)
        self._next = self._verify
        return f"{without_proof},p={_base64(proof)}".encode()

    def _verify(self, text: str) -> bytes:
        match = _SERVER_FINAL.fullmatch(text)
        if match is None or match["signature"] is None:
            raise AuthenticationError("the server refuses the SCRAM authentication")
        signature = _base64_of(match["signature"], "the server's SCRAM signature is not Base64")
        if not hmac.compare_digest(signature, self._signature):
            raise AuthenticationError("the server does not know the password: its SCRAM signature is wrong")
        self._is_complete = True
        return b""


def _check_nonce(nonce: str) -> None:
    if len(nonce) < NONCE_CHARACTERS_MIN or not re.fullmatch(_NONCE, nonce):
        raise ValueError(f"a SCRAM nonce needs {NONCE_CHARACTERS_MIN} printable ASCII characters without a comma")


def _text_of(message: bytes, refusal: str) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationError(refusal)
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise AuthenticationError(refusal) from None


def _escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _user_of(escaped: str) -> str:
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(data: bytes) -> bytes:
    """Return the bytes of strict Base64.

    :raises ValueError: the data is not Base64 in its only form.
    """
    decoded = binascii.a2b_base64(data, strict_mode=True)
    if base64.b64encode(decoded) != data:
        raise ValueError("not in the form that encoders write")
    return decoded


def _base64_of(text: str, refusal: str) -> bytes:
    try:
        return _decoded(text.encode("ascii"))
    except ValueError:
        raise AuthenticationError(refusal) from None


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)
