"""A certificate authority for a small installation: a CA, server certificates and client certificates, all P-256.

It needs the package `cryptography` (the extra `barnabas[security]`). Keys and certificates are texts in PEM format; the
caller stores them.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.errors import ConfigurationError
from barnabas.extras import naming_extra

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_DAYS = 3_650
"""The validity of a CA in days."""
CERTIFICATE_DAYS = 825
"""The validity of other certificates in days."""
CLOCK_SKEW = datetime.timedelta(hours=1)
"""The time by which certificates are valid before their creation, for hosts whose clocks are late."""
NAME_CHARACTERS_MAX = 64
"""The maximum length of a common name (RFC 5280, ub-common-name)."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, in PEM format."""

    certificate: str
    key: str = field(repr=False)

    @property
    def key_store(self) -> str:
        """The content of a file for `ssl.keystore.location`: the key, then the certificate."""
        return self.key + self.certificate


class Authority:
    """A CA that issues certificates.

    :param issued: the CA's own certificate and key.
    :raises MissingExtraError: the package `cryptography` is not installed.
    :raises ConfigurationError: the texts are not a certificate and its key.
    """

    def __init__(self, issued: Issued) -> None:
        with naming_extra("security"):
            from cryptography import x509  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
            from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        self.issued = issued
        try:
            self._certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
            key = serialization.load_pem_private_key(issued.key.encode(), password=None)
        except ValueError:
            raise ConfigurationError("the files of the CA are not a PEM certificate and a PEM private key") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigurationError("the private key of the CA is not an elliptic-curve key")
        self._key = key

    @classmethod
    def create(cls, name: str, now: datetime.datetime, days: int = CA_DAYS) -> Authority:
        """Create a CA with a new key.

        :param name: the common name of the CA.
        :param now: the current time with its time zone.
        """
        return cls(_issue(name, now, days, hosts=(), issuer=None))

    @property
    def certificate(self) -> str:
        """The CA's certificate, the content of a file for `ssl.truststore.location`."""
        return self.issued.certificate

    def issue_server(
        self, hosts: Sequence[str], now: datetime.datetime, days: int = CERTIFICATE_DAYS, name: str = ""
    ) -> Issued:
        """Issue a certificate for a broker. It is valid for servers and clients, since brokers connect to each other.

        :param hosts: the host names and IP addresses of the broker.
        :param name: the common name; empty for the first host.
        """
        return _issue(name or hosts[0], now, days, hosts=hosts, issuer=self)

    def issue_client(self, name: str, now: datetime.datetime, days: int = CERTIFICATE_DAYS) -> Issued:
        """Issue a certificate for a client whose principal is `User:CN=<name>`."""
        return _issue(name, now, days, hosts=(), issuer=self)

    @property
    def signer(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """The certificate and the key that sign."""
        return self._certificate, self._key


def _issue(name: str, now: datetime.datetime, days: int, hosts: Sequence[str], issuer: Authority | None) -> Issued:
    with naming_extra("security"):
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:NAME_CHARACTERS_MAX])])
    is_ca = issuer is None
    own, signing_key = (None, key) if issuer is None else issuer.signer
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if own is None else own.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_ca,
                crl_sign=is_ca,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not is_ca:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), critical=False
        )
    return Issued(
        builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _alternative_name(host: str) -> x509.GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigurationError(f"{host!r} is not a host name or an IP address") from None
