"""A CA for a small installation: the certificates that it issues, and what its texts show."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barnabas.errors import ConfigurationError
from barnabas.security.authority import CERTIFICATE_DAYS, CLOCK_SKEW, Authority, Issued

NOW = datetime.datetime(2027, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test CA", NOW)


def parsed(issued: Issued) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.certificate.encode())


def name_of(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def test_ca_may_sign_certificates_only(authority: Authority) -> None:
    certificate = parsed(authority.issued)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    certificate.verify_directly_issued_by(certificate)


def test_certificate_of_a_broker_names_its_hosts(authority: Authority) -> None:
    certificate = parsed(authority.issue_server(["broker-1.example", "10.0.0.1", "::1"], NOW))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker-1.example"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["10.0.0.1", "::1"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert name_of(certificate) == "broker-1.example"
    certificate.verify_directly_issued_by(parsed(authority.issued))


def test_certificate_of_a_client_cannot_be_used_by_a_broker(authority: Authority) -> None:
    certificate = parsed(authority.issue_client("alice", NOW))
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH}
    assert name_of(certificate) == "alice"
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)


def test_certificates_are_valid_a_little_before_they_are_issued(authority: Authority) -> None:
    certificate = parsed(authority.issue_client("alice", NOW))
    assert certificate.not_valid_before_utc == NOW - CLOCK_SKEW
    assert certificate.not_valid_after_utc == NOW + datetime.timedelta(days=CERTIFICATE_DAYS)


def test_stored_authority_issues_on(authority: Authority) -> None:
    again = Authority(Issued(authority.issued.certificate, authority.issued.key))
    parsed(again.issue_client("alice", NOW)).verify_directly_issued_by(parsed(authority.issued))


def test_serial_numbers_and_keys_differ(authority: Authority) -> None:
    first, second = (parsed(authority.issue_client("alice", NOW)) for _ in range(2))
    assert first.serial_number != second.serial_number
    assert first.public_key() != second.public_key()


def test_certificate_for_an_invalid_host_is_refused(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match="is not a host name"):
        authority.issue_server(["ü.example"], NOW, name="broker")


@pytest.mark.parametrize(("certificate", "key"), [("", ""), ("no PEM", "no PEM")])
def test_other_texts_are_no_authority(certificate: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match="files of the CA"):
        Authority(Issued(certificate, key))


def test_representations_hide_the_key(authority: Authority) -> None:
    key = authority.issued.key.splitlines()[1]
    assert key not in repr(authority.issued)
    assert key not in repr(authority)
    assert key in authority.issued.key_store
