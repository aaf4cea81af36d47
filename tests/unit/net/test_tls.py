"""TLS contexts from settings: which are refused, and how changed files come into use."""

from __future__ import annotations

import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from barnabas.errors import ConfigurationError
from barnabas.net.tls import PEM_BYTES_MAX, TlsContext, client_context, is_refusal, reason_of_failure, server_context
from barnabas.security.secrets import Secret
from barnabas.security.tls_settings import ClientAuth, TlsSettings
from tests.support.certificates import Certificates, now

PASSWORD = "key password"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def settings(certificates: Certificates) -> TlsSettings:
    return TlsSettings(key_store=str(certificates.server("broker")), trust_store=str(certificates.ca))


def refusal(settings: TlsSettings, make: Any = server_context) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make(settings)
    return str(caught.value)


def test_listener_demands_certificates_as_configured(settings: TlsSettings) -> None:
    modes = [server_context(replace(settings, client_auth=each)).verify_mode for each in ClientAuth]
    assert modes == [ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED]
    for each in (ClientAuth.REQUESTED, ClientAuth.REQUIRED):
        assert "no CA is trusted" in refusal(replace(settings, client_auth=each, trust_store=None))


def test_contexts_are_strict_by_default(settings: TlsSettings) -> None:
    server, client = server_context(settings), client_context(settings)
    for each in (server, client):
        assert each.minimum_version == ssl.TLSVersion.TLSv1_2
    assert (client.verify_mode, client.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert server.options & ssl.OP_NO_RENEGOTIATION
    assert server.num_tickets == 0
    unnamed = client_context(replace(settings, verifies_host=False))
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)
    unchecked = client_context(replace(settings, verifies_chain=False))
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)


def test_own_trust_store_replaces_that_of_the_operating_system(settings: TlsSettings) -> None:
    assert len(client_context(settings).get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"protocols": ()}, "ssl.enabled.protocols is empty"),
        ({"protocols": ("TLSv1.1", "TLSv1.2")}, "ssl.enabled.protocols contains 'TLSv1.1'"),
        ({"protocols": ("SSLv3",)}, "ssl.enabled.protocols contains 'SSLv3'"),
        ({"cipher_suites": "NONE-SUCH"}, "ssl.cipher.suites"),
        ({"key_store": None}, "needs a certificate"),
        ({"key_store": "/does/not/exist"}, "cannot read /does/not/exist: No such file"),
        ({"key_store": "/"}, "cannot read /"),
        ({"key_file": "/does/not/exist"}, "cannot read /does/not/exist"),
        ({"client_auth": ClientAuth.REQUIRED, "trust_store": "/does/not/exist"}, "cannot read /does/not/exist"),
        ({"client_auth": ClientAuth.REQUIRED, "trust_store": None, "trusted_certificates": "x"}, "PEM certificates"),
    ],
)
def test_unusable_settings_are_refused(settings: TlsSettings, changed: dict[str, Any], text: str) -> None:
    assert text in refusal(replace(settings, **changed))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is not a PEM private key"),
        (b"garbage", "is not a PEM private key"),
        (b"\xfe\xed\xfe\xed\0\0\0\2", "is a JKS key store; convert it to PEM: keytool"),
        (b"\x30\x82\x01\x02", "is a PKCS12 key store; convert it to PEM: openssl"),
        (b"-" * (PEM_BYTES_MAX + 1), "a PEM file has at most"),
    ],
    ids=["empty", "garbage", "JKS", "PKCS12", "large"],
)
def test_file_of_another_format_is_refused(tmp_path: Path, settings: TlsSettings, content: bytes, text: str) -> None:
    file = tmp_path / "store"
    file.write_bytes(content)
    assert text in refusal(replace(settings, key_store=str(file)))


def test_key_and_certificate_of_different_pairs_are_refused(certificates: Certificates, settings: TlsSettings) -> None:
    first, second = (certificates.authority.issue_server(["h"], now()) for _ in range(2))
    mixed = replace(settings, key_store=None, certificate_chain=first.certificate, key=Secret(second.key))
    assert "ssl.keystore.key is not a PEM private key with its certificate chain" in refusal(mixed)
    assert server_context(replace(mixed, key=Secret(first.key)))


def test_encrypted_key_needs_its_password(tmp_path: Path, certificates: Certificates, settings: TlsSettings) -> None:
    issued = certificates.authority.issue_server(["h"], now())
    key = serialization.load_pem_private_key(issued.key.encode(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    file = tmp_path / "encrypted.pem"
    file.write_bytes(key + issued.certificate.encode())
    given = replace(settings, key_store=str(file))
    assert "set ssl.key.password" in refusal(given)
    assert PASSWORD not in refusal(replace(given, key_password=Secret("wrong" + PASSWORD)))
    assert server_context(replace(given, key_password=Secret(PASSWORD)))
    inline = replace(
        given,
        key_store=None,
        certificate_chain=issued.certificate,
        key=Secret(key.decode()),
        key_password=Secret(PASSWORD),
    )
    assert server_context(inline)


def test_changed_file_comes_into_use(tmp_path: Path, certificates: Certificates, settings: TlsSettings) -> None:
    file = tmp_path / "broker.pem"
    valid = certificates.server("broker").read_bytes()
    file.write_bytes(valid)
    context = TlsContext(replace(settings, key_store=str(file)), server_context)
    first = context.current
    assert not context.reload()
    file.write_bytes(valid[:100])
    with pytest.raises(ConfigurationError):
        context.reload()
    assert not context.reload(), "each change is reported once"
    assert context.current is first
    file.unlink()
    with pytest.raises(ConfigurationError):
        context.reload()
    assert context.current is first
    file.write_bytes(certificates.server("other").read_bytes())
    assert context.reload()
    assert context.current is not first
    assert not context.reload()


def test_file_with_an_older_time_comes_into_use(
    tmp_path: Path, certificates: Certificates, settings: TlsSettings
) -> None:
    file, replacement = tmp_path / "broker.pem", tmp_path / "replacement"
    file.write_bytes(certificates.server("broker").read_bytes())
    context = TlsContext(replace(settings, key_store=str(file)), server_context)
    replacement.write_bytes(certificates.server("other").read_bytes())
    os.utime(replacement, (1, 1))
    replacement.replace(file)
    assert context.reload()


def test_context_without_files_never_reloads(certificates: Certificates) -> None:
    issued = certificates.authority.issue_server(["h"], now())
    inline = TlsSettings(certificate_chain=issued.certificate, key=Secret(issued.key))
    assert not TlsContext(inline, server_context).reload()


def ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] text")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", True),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", True),
        ("SSLV3_ALERT_BAD_CERTIFICATE", True),
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", True),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", True),
        ("TLSV1_ALERT_UNKNOWN_CA", True),
        ("TLSV1_ALERT_ACCESS_DENIED", True),
        ("TLSV1_ALERT_INTERNAL_ERROR", False),
        ("TLSV1_ALERT_PROTOCOL_VERSION", False),
        ("WRONG_VERSION_NUMBER", False),
        ("CERTIFICATE_VERIFY_FAILED", False),
    ],
)
def test_alert_about_a_certificate_is_a_refusal(reason: str, expected: bool) -> None:
    assert is_refusal(ssl_error(reason)) is expected


def test_other_errors_are_no_refusal() -> None:
    assert not any(map(is_refusal, (None, OSError(104, "reset"), ValueError(), ssl.SSLEOFError(8, "EOF"))))


def test_reasons_are_words() -> None:
    assert "does not use TLS" in reason_of_failure(ssl_error("WRONG_VERSION_NUMBER"))
    assert reason_of_failure(ConnectionResetError(104, "Connection reset by peer")) == "Connection reset by peer"
    assert reason_of_failure(TimeoutError()) == "TimeoutError"
