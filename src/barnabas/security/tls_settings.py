"""The TLS settings of a listener or a client, as Kafka's `ssl.*` settings. All files have PEM format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from barnabas.security.secrets import Secret

DEFAULT_PROTOCOLS = ("TLSv1.2", "TLSv1.3")


class ClientAuth(Enum):
    """The client certificates that a listener demands (`ssl.client.auth`)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The TLS settings of one listener or one client. All certificates and keys have the PEM format.

    :param key_store: a file with the private key and the certificate chain (`ssl.keystore.location`).
    :param key_file: a file with the private key, if the key is not in `key_store`.
    :param certificate_chain: the certificate chain, instead of a file (`ssl.keystore.certificate.chain`).
    :param key: the private key, instead of a file (`ssl.keystore.key`).
    :param key_password: the password of an encrypted private key (`ssl.key.password`).
    :param trust_store: a file with the certificates of trusted CAs (`ssl.truststore.location`).
    :param trusted_certificates: trusted certificates, instead of a file (`ssl.truststore.certificates`).
    :param protocols: the permitted versions of TLS (`ssl.enabled.protocols`).
    :param cipher_suites: OpenSSL names of permitted TLS 1.2 cipher suites, separated by colons; empty for the defaults.
    :param client_auth: the client certificates that a listener demands.
    :param verifies_host: False if a client accepts a certificate for another host
        (`ssl.endpoint.identification.algorithm` is empty).
    :param verifies_chain: False if a client accepts a certificate of any CA.
    """

    key_store: str | None = None
    key_file: str | None = None
    certificate_chain: str = ""
    key: Secret | None = None
    key_password: Secret | None = None
    trust_store: str | None = None
    trusted_certificates: str = ""
    protocols: tuple[str, ...] = DEFAULT_PROTOCOLS
    cipher_suites: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    verifies_host: bool = True
    verifies_chain: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """The PEM files of these settings."""
        return tuple(filter(None, (self.key_store, self.key_file, self.trust_store)))
