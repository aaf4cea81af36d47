"""The security of a client's connections, from its settings."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.client.config import ClientConfig, ConsumerConfig
from barnabas.errors import AuthenticationError, BarnabasError, ConfigurationError, DisconnectedError
from barnabas.net.client_connection import ConnectionSecurity
from barnabas.net.tls import TlsContext, client_context
from barnabas.security.nonces import new_nonce
from barnabas.security.sasl import SaslClient, SaslCredentials, new_sasl_client
from barnabas.security.secret_sources import read_secret
from barnabas.security.secrets import Secret
from barnabas.security.tls_settings import TlsSettings


def connection_security(config: ClientConfig) -> ConnectionSecurity | None:
    """Return the TLS context and the SASL mechanism of a client; None without both.

    :raises ConfigurationError: a certificate file or another setting is not valid.
    """
    protocol = config.security_protocol
    if not protocol.uses_tls and not protocol.uses_sasl:
        return None
    tls = TlsContext(tls_settings(config), client_context) if protocol.uses_tls else None
    return ConnectionSecurity(tls, _sasl(config) if protocol.uses_sasl else None)


def tls_settings(config: ClientConfig) -> TlsSettings:
    """Return the TLS settings of a client."""
    password = None if config.ssl_password is None else Secret(read_secret("ssl_password", config.ssl_password))
    return TlsSettings(
        key_store=config.ssl_certfile,
        key_file=config.ssl_keyfile,
        key_password=password,
        trust_store=config.ssl_cafile,
        verifies_host=config.ssl_check_hostname,
        verifies_chain=config.ssl_verify,
    )


def zookeeper_tls_settings(config: ConsumerConfig) -> TlsSettings | None:
    """Return the TLS settings of a consumer for ZooKeeper; None without TLS."""
    if not config.zookeeper_ssl_client_enable:
        return None
    secret = config.zookeeper_ssl_password
    return TlsSettings(
        key_store=config.zookeeper_ssl_certfile,
        key_file=config.zookeeper_ssl_keyfile,
        key_password=None if secret is None else Secret(read_secret("zookeeper_ssl_password", secret)),
        trust_store=config.zookeeper_ssl_cafile,
        verifies_host=config.zookeeper_ssl_check_hostname,
    )


def _sasl(config: ClientConfig) -> Callable[[], SaslClient]:
    mechanism, username = config.sasl_mechanism, config.sasl_username or ""
    password, token = config.sasl_password, config.sasl_oauth_token

    def new_client() -> SaslClient:
        given = SaslCredentials(
            username=username,
            password=None if password is None else read_secret("sasl_password", password),
            token=None if token is None else _token_of(token),
        )
        return new_sasl_client(mechanism, given, new_nonce)

    return new_client


def _token_of(token: Callable[[], str]) -> str:
    """Return the token of the application's function. The errors do not contain the text of the function's error, which
    may contain credentials.

    :raises DisconnectedError: the function raised an OSError, such as a timeout; a later call may succeed.
    :raises AuthenticationError: the function raised another error.
    """
    try:
        found = token()
    except BarnabasError:
        raise
    except OSError as error:
        reason = f"sasl_oauth_token raised {type(error).__name__}; the identity provider may be unreachable"
        raise DisconnectedError(reason, reason) from error
    except Exception as error:
        raise AuthenticationError(f"sasl_oauth_token raised {type(error).__name__}") from error
    if not isinstance(found, str):
        raise ConfigurationError(f"sasl_oauth_token must return the token as a str, not {type(found).__name__}")
    return found
