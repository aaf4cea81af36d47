"""The TLS settings and the authentication of an HTTP server: the registry, and the status pages."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.addresses import is_loopback
from barnabas.errors import ConfigurationError
from barnabas.security.tls_settings import ClientAuth, TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSecurity:
    """The security of an HTTP server.

    :param certfile: a PEM file with the certificate chain, and the private key unless `keyfile` is given; None for HTTP
        without TLS.
    :param cafile: a PEM file with the CAs of client certificates; None if the server requests no certificates.
    :param users: True if each client must authenticate; None: as soon as there is a certificate.
    :param allow_anonymous: True if other machines may connect without authentication.
    """

    certfile: str | None = None
    keyfile: str | None = None
    cafile: str | None = None
    users: bool | None = None
    allow_anonymous: bool = False

    @property
    def authenticates(self) -> bool:
        """True if each client must authenticate."""
        return self.certfile is not None if self.users is None else self.users

    @property
    def scheme(self) -> str:
        return "http" if self.certfile is None else "https"

    @property
    def tls(self) -> TlsSettings | None:
        """The TLS settings; None without TLS."""
        if self.certfile is None:
            return None
        return TlsSettings(
            key_store=self.certfile,
            key_file=self.keyfile,
            trust_store=self.cafile,
            client_auth=ClientAuth.NONE if self.cafile is None else ClientAuth.REQUESTED,
        )

    def is_open_to_all(self, host: str) -> bool:
        """Return whether other machines can connect without authentication."""
        return not is_loopback(host) and not self.authenticates

    def check(self, address: str, host: str) -> None:
        """Check that the settings belong together, and that no other machine can connect without authentication.

        :param address: the address to listen on, for errors; `host` is its host.
        :raises ConfigurationError: the settings contradict each other, or do not protect the server.
        """
        if self.certfile is None and (self.keyfile or self.cafile):
            raise ConfigurationError("--http-keyfile and --http-cafile need --http-certfile")
        if self.cafile is not None and not self.authenticates:
            raise ConfigurationError("--http-cafile authenticates clients, and --http-auth none does not")
        if is_loopback(host):
            return
        if self.authenticates and self.certfile is None:
            raise ConfigurationError(
                f"{address} would receive passwords without encryption; give a certificate with --http-certfile"
            )
        if not self.authenticates and not self.allow_anonymous:
            raise ConfigurationError(
                f"{address} accepts connections from other machines without authentication; give a certificate with"
                " --http-certfile, or permit this with --allow-anonymous"
            )


OPEN = HttpSecurity()
"""Neither TLS nor authentication, for servers on the loopback interface."""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """The address of status pages, with its security.

    :param address: see `barnabas.addresses.split_listener`.
    """

    address: str
    security: HttpSecurity = OPEN
