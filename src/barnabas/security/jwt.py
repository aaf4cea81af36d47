"""Access tokens as JSON Web Tokens (RFC 7519, RFC 9068), checked with the public keys of their issuer.

Each check is mandatory: the signature, the algorithm, the issuer, the audience and the expiry. A validator without one
of them cannot be created. Keys come from a JSON Web Key Set (RFC 7517) that the operator configures; URLs and keys in
the header of a token have no effect.

This module alone uses the package joserfc (the extra `barnabas[security]`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.extras import require
from barnabas.security.oauthbearer import TOKEN_BYTES_MAX, AcceptedToken
from barnabas.security.principal import is_valid_name

KEY_SET_BYTES_MAX = 1024 * 1024
KEYS_MAX = 100
HEADER_BYTES_MAX = 8192
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192
CLOCK_SKEW_S_MAX = 3600
SECONDS_MAX = 2**38
"""The maximum of a time in a token, in seconds since 1970."""

KEY_TYPES = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
    "ES256": "EC",
    "ES384": "EC",
    "ES512": "EC",
    "EdDSA": "OKP",
    "Ed25519": "OKP",
}
"""The supported algorithms, and the type of key that each of them needs."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_INVALID = "the token is not a signed JWT, or its header is invalid"
_LIBRARY_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


class UnknownKeyError(AuthenticationError):
    """The key set has no key with the id that the token names. The issuer may have new keys: load the set again."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of an issuer.

    :param key_id: the id that tokens name; empty for a key without an id.
    :param key_type: RSA, EC or OKP.
    :param algorithm: the only algorithm of the key; empty if the key does not restrict it.
    :param key: the key of joserfc.
    """

    key_id: str
    key_type: str
    algorithm: str
    key: Any


class KeySet:
    """The public keys of an issuer, by key id."""

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        self._keys = {key.key_id: key for key in keys}

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key_id: str) -> PublicKey | None:
        """Return the key with this id. A token without a key id fits a set of one key.

        :param key_id: empty for a token without a key id.
        """
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id) if key_id else None


def parse_key_set(data: bytes) -> KeySet:
    """Return the public keys of a JSON Web Key Set. Keys for encryption and keys of unknown types are left out.

    :raises ConfigurationError: the set is too large or invalid, has private or symmetric keys, or has no usable key.
    :raises MissingExtraError: joserfc is not installed.
    """
    if len(data) > KEY_SET_BYTES_MAX:
        raise ConfigurationError(f"the key set has more than {KEY_SET_BYTES_MAX} bytes")
    try:
        entries = _json_object(data)["keys"]
    except (ValueError, KeyError, RecursionError):
        raise ConfigurationError('the key set is not a JSON Web Key Set: a JSON object with a list "keys"') from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigurationError('the key set has no list "keys" of JSON objects')
    if len(entries) > KEYS_MAX:
        raise ConfigurationError(f"the key set has more than {KEYS_MAX} keys")
    keys = [key for number, entry in enumerate(entries, 1) if (key := _public_key(number, entry))]
    if not keys:
        raise ConfigurationError("the key set has no public key for signatures")
    ids = [key.key_id for key in keys]
    if len(set(ids)) < len(ids):
        raise ConfigurationError("two keys of the key set have the same key id, or more than one key has no id")
    return KeySet(keys)


def _public_key(number: int, entry: Mapping[str, Any]) -> PublicKey | None:
    """Return the key of an entry; None for a key that does not verify signatures."""
    key_type, key_id, algorithm = (entry.get(name, "") for name in ("kty", "kid", "alg"))
    if key_type == "oct" or "k" in entry:
        raise ConfigurationError(f"key {number} of the key set is symmetric; only public keys are permitted")
    if "d" in entry:
        raise ConfigurationError(f"key {number} of the key set is private; only public keys are permitted")
    if not all(isinstance(each, str) for each in (key_type, key_id, algorithm)):
        raise ConfigurationError(f"key {number} of the key set is damaged")
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    if key_type not in KEY_TYPES.values() or (algorithm and algorithm not in KEY_TYPES):
        return None
    jwk, errors = require("joserfc.jwk", "security"), require("joserfc.errors", "security")
    try:
        bits = int.from_bytes(_decoded(entry["n"]), "big").bit_length() if key_type == "RSA" else RSA_BITS_MIN
        key = jwk.import_key(dict(entry), key_type) if RSA_BITS_MIN <= bits <= RSA_BITS_MAX else None
    except (errors.JoseError, *_LIBRARY_ERRORS):
        raise ConfigurationError(f"key {number} of the key set is damaged") from None
    if key is None:
        needed = f"RSA needs {RSA_BITS_MIN} to {RSA_BITS_MAX}"
        raise ConfigurationError(f"key {number} of the key set has {bits} bits; {needed}")
    return PublicKey(key_id, key_type, algorithm, key)


class JwtValidator:
    """Checks access tokens.

    :param keys: the public keys of the issuer.
    :param issuer: the `iss` of accepted tokens.
    :param audience: the audiences of this cluster; the `aud` of an accepted token contains one of them.
    :param clock_skew_s: the tolerated difference between the clocks of issuer and broker, in seconds.
    :param principal_claim: the claim with the name of the principal.
    :param algorithms: the names of the accepted algorithms; `KEY_TYPES` contains all supported names.
    :raises ConfigurationError: an argument is missing or invalid.
    """

    def __init__(
        self,
        keys: KeySet,
        *,
        issuer: str,
        audience: Collection[str],
        clock_skew_s: float = 30,
        principal_claim: str = "sub",
        algorithms: Collection[str] = tuple(KEY_TYPES),
    ) -> None:
        audiences = frozenset({audience} if isinstance(audience, str) else audience)
        if not len(keys):
            raise ConfigurationError("OAUTHBEARER needs the public keys of the issuer")
        if not issuer:
            raise ConfigurationError("OAUTHBEARER needs the expected issuer of tokens")
        if not audiences or not all(audiences):
            raise ConfigurationError("OAUTHBEARER needs the expected audience of tokens")
        if not principal_claim:
            raise ConfigurationError("OAUTHBEARER needs the name of the claim with the principal")
        if not 0 <= clock_skew_s <= CLOCK_SKEW_S_MAX:
            raise ConfigurationError(f"the clock skew of OAUTHBEARER must be between 0 and {CLOCK_SKEW_S_MAX} s")
        if not algorithms or isinstance(algorithms, str) or not set(algorithms) <= KEY_TYPES.keys():
            raise ConfigurationError(f"the algorithms of OAUTHBEARER must be some of {', '.join(KEY_TYPES)}")
        self._keys = keys
        self._issuer = issuer
        self._audiences = audiences
        self._clock_skew_s = clock_skew_s
        self._principal_claim = principal_claim
        supported = require("joserfc.jws", "security").JWSRegistry.algorithms
        self._algorithms: dict[str, Any] = {name: supported[name] for name in algorithms}

    def validate(self, token: str, now_ms: int) -> AcceptedToken:
        """Return the principal of a token, and the end of its validity.

        :param now_ms: the time in ms since 1970.
        :raises UnknownKeyError: the key set lacks the token's key.
        :raises AuthenticationError: the token is refused. The text is the reason, without parts of the token.
        """
        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationError(f"the token has more than {TOKEN_BYTES_MAX} characters")
        if not _TOKEN.fullmatch(token):
            raise AuthenticationError(_INVALID)
        algorithm, key = self._key_of(token)
        claims = _verified_claims(token, self._algorithms[algorithm], key)
        expires_s = self._check_times(claims, now_ms / 1000)
        if claims.get("iss") != self._issuer:
            raise AuthenticationError("the token has another issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(each, str) and each in self._audiences for each in named):
            raise AuthenticationError("the token is for another audience")
        name = claims.get(self._principal_claim)
        if not isinstance(name, str) or not is_valid_name(name):
            raise AuthenticationError(f"the token has no valid name in the claim {self._principal_claim}")
        return AcceptedToken(name, int(expires_s * 1000))

    def _key_of(self, token: str) -> tuple[str, PublicKey]:
        """Return the algorithm and the key of a token, from its header."""
        encoded = token.partition(".")[0]
        if len(encoded) > HEADER_BYTES_MAX:
            raise AuthenticationError(_INVALID)
        try:
            header = _json_object(_decoded(encoded))
        except (ValueError, RecursionError):
            raise AuthenticationError(_INVALID) from None
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if not isinstance(algorithm, str) or not isinstance(key_id, str) or "crit" in header or "b64" in header:
            raise AuthenticationError(_INVALID)
        if algorithm not in self._algorithms:
            raise AuthenticationError("the signature algorithm of the token is not permitted")
        key = self._keys.find(key_id)
        if key is None:
            raise UnknownKeyError("the key set has no key with the key id of the token")
        if key.key_type != KEY_TYPES[algorithm] or key.algorithm not in {"", algorithm}:
            raise AuthenticationError("the signature algorithm of the token does not fit its key")
        return algorithm, key

    def _check_times(self, claims: Mapping[str, Any], now_s: float) -> float:
        """Return the time at which the token expires, in seconds since 1970."""
        expires_s = _seconds(claims, "exp")
        if expires_s is None:
            raise AuthenticationError("the token has no expiry")
        if expires_s + self._clock_skew_s <= now_s:
            raise AuthenticationError("the token has expired")
        for claim in ("nbf", "iat"):
            begins_s = _seconds(claims, claim)
            if begins_s is not None and begins_s - self._clock_skew_s > now_s:
                raise AuthenticationError(f"the token is not valid yet: {claim} is in the future")
        return expires_s


def claimed_identity(token: str, claim: str) -> AcceptedToken:
    """Return the name and the expiry that a token claims. They are not verified: a broker must verify the token.

    :param claim: the claim that contains the name.
    :raises AuthenticationError: the token is not a JWT with a name and an expiry.
    """
    if not _TOKEN.fullmatch(token):
        raise AuthenticationError(_INVALID)
    try:
        claims = _json_object(_decoded(token.split(".")[1]))
    except (ValueError, RecursionError):
        raise AuthenticationError("the claims of the token are not a JSON object") from None
    name, expires_s = claims.get(claim), _seconds(claims, "exp")
    if not isinstance(name, str) or not is_valid_name(name):
        raise AuthenticationError(f"the token has no valid name in the claim {claim}")
    if expires_s is None:
        raise AuthenticationError("the token has no expiry")
    return AcceptedToken(name, int(expires_s * 1000))


def _verified_claims(token: str, algorithm: Any, key: PublicKey) -> dict[str, Any]:
    """Return the claims of a token whose signature is right.

    :param algorithm: the algorithm of joserfc.
    """
    errors = require("joserfc.errors", "security")
    signed, _, signature = token.rpartition(".")
    try:
        algorithm.check_key(key.key)
        is_right = algorithm.verify(signed.encode("ascii"), _decoded(signature), key.key)
    except (errors.JoseError, *_LIBRARY_ERRORS):
        is_right = False
    if is_right is not True:
        raise AuthenticationError("the signature of the token is wrong")
    try:
        return _json_object(_decoded(signed.partition(".")[2]))
    except (ValueError, RecursionError):
        raise AuthenticationError("the claims of the token are not a JSON object") from None


def _decoded(text: str) -> bytes:
    """Return the bytes of Base64 in the alphabet for URLs, without padding.

    :raises ValueError: the text is not Base64.
    """
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _seconds(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise AuthenticationError(f"the token has an invalid time in {claim}")
    return float(value)


def _json_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object.

    :raises ValueError: the data is not a JSON object, or has a name twice, or a number that is not finite.
    :raises RecursionError: the data is nested too deeply.
    """
    value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_finite)
    if isinstance(value, dict):
        return value
    raise ValueError("no object")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice")
    return value


def _finite(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
