"""The server sides of the SASL mechanisms that a broker offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.broker.settings.rules import items_of
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.token_keys import TokenChecks, TokenKeys
from barnabas.broker.user_credentials import UserCredentials
from barnabas.clock import Clock
from barnabas.errors import AuthenticationError
from barnabas.security.jwt import UnknownKeyError
from barnabas.security.nonces import new_nonce
from barnabas.security.oauthbearer import AcceptedToken, OAuthBearerServer
from barnabas.security.plain import PlainServer
from barnabas.security.protocols import OAUTHBEARER, PLAIN
from barnabas.security.sasl import SaslServer
from barnabas.security.scram import ScramMechanism, ScramServer


class SaslMechanisms:
    """Creates the server sides of mechanisms.

    :param random_bytes: returns random bytes.
    """

    def __init__(
        self, config: BrokerConfig, users: UserCredentials, clock: Clock, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._config = config
        self._users = users
        self._clock = clock
        self._random_bytes = random_bytes
        self._keys: TokenKeys | None = None

    def servers(self, names: tuple[str, ...]) -> Mapping[str, Callable[[], SaslServer]]:
        """Return the functions that create the server side of each named mechanism.

        :raises ConfigurationError: the settings of OAUTHBEARER are incomplete.
        """
        return {name: self._new_server(name) for name in names}

    def accepted_token(self, token: str) -> AcceptedToken:
        """Check a token for the status pages; called on a thread.

        :raises AuthenticationError: the token is not valid, or no listener offers OAUTHBEARER.
        """
        if self._keys is None:
            raise AuthenticationError("no listener of the broker offers OAUTHBEARER, so it accepts no tokens")
        return self._validate(self._keys, token)

    def close(self) -> None:
        """Stop reading keys."""
        if self._keys is not None:
            self._keys.stop()

    def _new_server(self, name: str) -> Callable[[], SaslServer]:
        if name == PLAIN:
            return lambda: PlainServer(self._users.find, self._users.decoys)
        if name == OAUTHBEARER:
            keys = self._start_keys()
            return lambda: OAuthBearerServer(lambda token: self._validate(keys, token))
        mechanism = ScramMechanism(name)
        return lambda: ScramServer(mechanism, self._users.find, self._users.decoys, new_nonce(self._random_bytes))

    def _validate(self, keys: TokenKeys, token: str) -> AcceptedToken:
        """Check a token; called on a thread.

        :raises AuthenticationError: the token is not valid, or the broker has no keys yet.
        """
        validator = keys.validator
        if validator is None:
            raise AuthenticationError("the broker has no keys to verify tokens yet")
        try:
            return validator.validate(token, self._clock.time_ms())
        except UnknownKeyError:
            keys.note_unknown_key()
            raise

    def _start_keys(self) -> TokenKeys:
        if self._keys is None:
            config = self._config
            self._keys = TokenKeys(
                config.sasl_oauthbearer_jwks_endpoint_url,
                config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
                self._clock.monotonic,
                TokenChecks(
                    issuer=config.sasl_oauthbearer_expected_issuer,
                    audiences=tuple(items_of(config.sasl_oauthbearer_expected_audience)),
                    clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
                    principal_claim=config.sasl_oauthbearer_sub_claim_name,
                ),
            )
            self._keys.start()
        return self._keys
