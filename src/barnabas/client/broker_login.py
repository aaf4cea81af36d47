"""Proves the credentials of HTTP requests by SASL logins at a broker: `barnabas.security.http_authentication`.

So the registry and the status pages accept the same users as the brokers, without a copy of their credentials. A login
opens a connection as the user, and asks the broker what the user may do with the cluster.

The broker's response to a token does not contain the principal. So the login names the principal that the token claims,
and the broker refuses a token of another principal (RFC 7628, `authzid`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from barnabas import __version__
from barnabas.addresses import host_port
from barnabas.client.config import AdminConfig, ClientConfig, make_config, settings_of_all_clients
from barnabas.client.security import tls_settings
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import (
    ApiError,
    AuthenticationError,
    BarnabasError,
    ConfigurationError,
    DisconnectedError,
    ErrorCode,
    TimedOutError,
)
from barnabas.net.client_connection import ClientConnection, ConnectionSecurity, dial
from barnabas.net.tls import TlsContext, client_context
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.security.acls import Operation
from barnabas.security.http_authentication import REMEMBERED_S, HttpCredentials, HttpIdentity
from barnabas.security.jwt import claimed_identity
from barnabas.security.nonces import new_nonce
from barnabas.security.oauthbearer import OAuthBearerClient
from barnabas.security.principal import Principal
from barnabas.security.protocols import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from barnabas.security.sasl import SaslClient, SaslCredentials, new_sasl_client

LOGIN_TIMEOUT_S = 10.0
"""The maximum time of a login, in seconds."""


class BrokerLogin:
    """Logs in at the brokers of a client's settings, with other credentials.

    The mechanism for passwords is that of the client. With SCRAM and OAUTHBEARER, the login tries both SCRAM
    mechanisms, because a user may have a credential for only one of them.

    :param config: the settings of a client; its security protocol must be SASL_SSL or SASL_PLAINTEXT.
    :param principal_claim: the claim of tokens with the name of the principal.
    :raises ConfigurationError: the client does not use SASL, or a certificate file is not valid.
    """

    def __init__(self, config: ClientConfig, clock: Clock, principal_claim: str = "sub") -> None:
        if not config.security_protocol.uses_sasl:
            raise ConfigurationError(
                f"users cannot log in with security_protocol {config.security_protocol.value}; connect to a listener"
                " with SASL_SSL"
            )
        self._config = config
        self._clock = clock
        self._principal_claim = principal_claim
        tls = TlsContext(tls_settings(config), client_context) if config.security_protocol.uses_tls else None
        self._security = ConnectionSecurity(tls)
        own = config.sasl_mechanism
        others = tuple(each for each in SCRAM_MECHANISMS[::-1] if each != own)
        self._mechanisms = (PLAIN,) if own == PLAIN else others if own == OAUTHBEARER else (own, *others)

    async def prove(self, credentials: HttpCredentials) -> HttpIdentity:
        """Log in, and return the identity of the user.

        :raises AuthenticationError: the broker refuses the credentials.
        :raises DisconnectedError: no broker responds.
        """
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                if credentials.is_token:
                    return await self._prove_token(credentials.secret.reveal())
                return await self._prove_password(credentials.user, credentials.secret.reveal())
        except TimeoutError:
            raise DisconnectedError(f"no broker completed a login within {LOGIN_TIMEOUT_S:g} s") from None

    async def _prove_password(self, user: str, password: str) -> HttpIdentity:
        given = SaslCredentials(username=user, password=password)
        refusal = AuthenticationError("no mechanism")
        for mechanism in self._mechanisms:
            try:
                may_describe = await self._log_in(lambda name=mechanism: new_sasl_client(name, given, new_nonce))  # type: ignore[misc]
            except AuthenticationError as error:
                refusal = error
            else:
                return HttpIdentity(Principal("User", user), may_describe)
        raise refusal

    async def _prove_token(self, token: str) -> HttpIdentity:
        claimed = claimed_identity(token, self._principal_claim)
        may_describe = await self._log_in(lambda: OAuthBearerClient(token, authorization=claimed.principal))
        lifetime_s = (claimed.expires_ms - self._clock.time_ms()) / 1000
        return HttpIdentity(Principal("User", claimed.principal), may_describe, min(REMEMBERED_S, lifetime_s))

    async def _log_in(self, new_client: Callable[[], SaslClient]) -> bool:
        """Log in at a broker; return whether the user may describe the cluster.

        :raises AuthenticationError: the broker refuses the credentials.
        :raises DisconnectedError: no broker responds.
        """
        connection = await self._connect()
        try:
            await connection.authenticate(new_client, LOGIN_TIMEOUT_S)
            request = DescribeClusterRequest(include_cluster_authorized_operations=True)
            response: DescribeClusterResponse = await connection.send(request, timeout_s=LOGIN_TIMEOUT_S)
            if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                return False
            if response.error_code:
                raise ApiError.about(response.error_code, "the operations of a user on the cluster")
            return response.cluster_authorized_operations & 1 << Operation.DESCRIBE > 0
        except AuthenticationError:
            raise
        except BarnabasError as error:
            raise DisconnectedError(str(error)) from error
        finally:
            connection.close()

    async def _connect(self) -> ClientConnection:
        reason = ""
        for host, port in self._config.bootstrap_servers:
            try:
                return await dial(
                    host,
                    port,
                    client_id=self._config.client_id,
                    connect_timeout_s=LOGIN_TIMEOUT_S,
                    software_version=__version__,
                    security=self._security,
                )
            except (DisconnectedError, TimedOutError) as error:
                reason = str(error)
            except AuthenticationError as error:  # the certificate of the broker, not the credentials of the user
                reason = f"{host_port(host, port)}: {error}"
        raise DisconnectedError(f"no broker for logins: {reason}")


def blocking_prover(
    settings: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK
) -> Callable[[HttpCredentials], HttpIdentity]:
    """Return a function that logs in, for threads without an event loop.

    :param settings: the settings of a client under Kafka's names.
    :raises ConfigurationError: see `BrokerLogin`.
    """
    login = BrokerLogin(make_config(AdminConfig, settings_of_all_clients(settings), {}), clock)
    return lambda credentials: asyncio.run(login.prove(credentials))
