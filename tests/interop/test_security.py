"""Clients and listeners with TLS and SASL: each mechanism, what is refused, and what a client learns about it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas as client
from barnabas.broker.broker import Broker
from barnabas.broker.settings.loading import load_config
from barnabas.errors import AuthenticationError, BarnabasError, ConfigurationError, ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.security.nonces import new_nonce
from barnabas.security.plain import encode_plain
from barnabas.security.scram import ScramClient, ScramMechanism
from tests.interop.test_raw_frames import RawConnection
from tests.support.certificates import Certificates, now
from tests.support.reading import wait_until
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

RECORDS = 20
IN_USE = 60.0
"""The timeout of calls, in seconds. An authentication that fails ends a call long before."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def use(topic: str, settings: dict[str, Any]) -> None:
    """Create a topic, write records to it, and read them."""
    with client.Admin(**settings) as admin:
        admin.create_topic(topic)
    with client.Producer(**settings) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    with client.Consumer(**settings, group=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < RECORDS:
            found += [each.value for each in consumer.poll(timeout_s=IN_USE)]
        consumer.commit()
    assert found == [b"%d" % number for number in range(RECORDS)]


CREDENTIALS: dict[str, Callable[[SecuredBroker], dict[str, Any]]] = {
    "scram-256": lambda broker: broker.client(sasl_mechanism="SCRAM-SHA-256"),
    "scram-512": lambda broker: broker.client(sasl_mechanism="SCRAM-SHA-512"),
    "scram-without-tls": lambda broker: broker.client("SASL_PLAINTEXT"),
    "plain": lambda broker: broker.client(sasl_mechanism="PLAIN"),
    "token": lambda broker: broker.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=broker.tokens.token),
    "certificate": lambda broker: broker.client("SSL", ssl_certfile=str(broker.certificates.client(USER))),
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_clients_with_valid_credentials_write_and_read(secured: SecuredBroker, kind: str) -> None:
    use(f"valid-{kind}", CREDENTIALS[kind](secured))


def test_principal_of_a_certificate_follows_the_mapping_rules(secured: SecuredBroker) -> None:
    """Only a super user may list the users, and `super.users` has the mapped name."""
    codes = []
    for name in (USER, "Other Client"):
        context = ssl.create_default_context(cafile=str(secured.certificates.ca))
        context.load_cert_chain(secured.certificates.client(name))
        with raw(secured, "SSL") as connection:
            connection.sock = context.wrap_socket(connection.sock, server_hostname="127.0.0.1")
            asked = connection.call(
                DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse
            )
            codes.append(asked.error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def expired(broker: SecuredBroker) -> dict[str, Any]:
    past_s = int(time.time()) - 3_600
    token = broker.tokens.token(exp=past_s)
    return broker.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=lambda: token)


def wrong_authority(broker: SecuredBroker) -> dict[str, Any]:
    return broker.client(ssl_cafile=str(Certificates(broker.folder / "other", "other CA").ca))


def foreign_certificate(broker: SecuredBroker) -> dict[str, Any]:
    other = Certificates(broker.folder / "other", "other CA")
    return broker.client("SSL", ssl_certfile=str(other.client(USER)))


def expired_certificate(broker: SecuredBroker) -> dict[str, Any]:
    past = now() - datetime.timedelta(days=10)
    file = broker.folder / "expired.pem"
    file.write_text(broker.certificates.authority.issue_client(USER, past, days=1).key_store)
    return broker.client("SSL", ssl_certfile=str(file))


REFUSED: dict[str, tuple[Callable[[SecuredBroker], dict[str, Any]], str]] = {
    "wrong-password": (lambda broker: broker.client(sasl_password="wrong"), "credentials are not valid"),
    "unknown-user": (lambda broker: broker.client(sasl_username="mallory"), "credentials are not valid"),
    "wrong-password-plain": (
        lambda broker: broker.client(sasl_mechanism="PLAIN", sasl_password="wrong"),
        "credentials are not valid",
    ),
    "unknown-user-plain": (
        lambda broker: broker.client(sasl_mechanism="PLAIN", sasl_username="mallory"),
        "credentials are not valid",
    ),
    "expired-token": (expired, "credentials are not valid"),
    "mechanism-not-offered": (
        lambda broker: broker.client("SASL_PLAINTEXT", sasl_mechanism="PLAIN"),
        "it offers SCRAM-SHA-256, SCRAM-SHA-512",
    ),
    "wrong-authority": (wrong_authority, "check ssl_cafile"),
    "no-certificate": (lambda broker: broker.client("SSL"), "ssl_certfile"),
    "foreign-certificate": (foreign_certificate, "ssl_certfile"),
    "expired-certificate": (expired_certificate, "ssl_certfile"),
}


def refusals(topic: str, settings: dict[str, Any]) -> list[str]:
    """Return the errors of an administrator, a producer and a consumer."""
    errors = []
    with client.Admin(**settings) as admin, pytest.raises(AuthenticationError) as caught:
        admin.list_topics()
    errors.append(str(caught.value))
    with client.Producer(**settings) as producer, pytest.raises(AuthenticationError) as caught:
        producer.send(topic, b"v").result(IN_USE)
    errors.append(str(caught.value))
    with client.Consumer(**settings, group=topic) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(AuthenticationError) as caught:
            consumer.poll(timeout_s=IN_USE)
    errors.append(str(caught.value))
    return errors


@pytest.mark.parametrize("kind", REFUSED)
def test_clients_learn_at_once_that_they_are_refused(secured: SecuredBroker, kind: str) -> None:
    settings, text = REFUSED[kind]
    for error in refusals("refused", settings(secured)):
        assert text in error


def test_unknown_user_and_wrong_password_get_the_same_answer(secured: SecuredBroker) -> None:
    answers = {
        kind: {each.replace("PLAIN", "").replace("SCRAM-SHA-256", "") for each in refusals("refused", made(secured))}
        for kind, (made, _) in REFUSED.items()
        if kind.startswith(("wrong-password", "unknown-user"))
    }
    assert len(answers) == 4
    assert len({frozenset(each) for each in answers.values()}) == 1, answers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_refuse_a_client_without_certificate(secured: SecuredBroker, version: Any) -> None:
    context = ssl.create_default_context(cafile=str(secured.certificates.ca))
    context.minimum_version = context.maximum_version = version
    with (
        raw(secured, "SSL") as connection,
        pytest.raises(ssl.SSLError),
        context.wrap_socket(connection.sock, server_hostname="127.0.0.1") as secure,
    ):
        secure.recv(1)


def test_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        broker.certificates.server("broker", hosts=("elsewhere.example",))
        broker.reload()
        for error in refusals("refused", broker.client()):
            assert "check ssl_cafile, and the host names" in error
        use("unchecked", broker.client(ssl_check_hostname=False))


def test_expired_certificate_of_a_broker_is_refused(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        past = now() - datetime.timedelta(days=10)
        expired_one = broker.certificates.authority.issue_server(["127.0.0.1"], past, days=1)
        broker.key_store.write_text(expired_one.key_store)
        broker.reload()
        for error in refusals("refused", broker.client()):
            assert "certificate has expired" in error


@pytest.mark.parametrize("name", ["line\nbreak", "tab\t", "ü ñ", "," * 64, " x ", "#", "\u202e", "CN=alice", "a/b"])
def test_strange_name_in_a_certificate_is_served_or_refused(secured: SecuredBroker, name: str) -> None:
    """The name is never that of another user, and writes no line of its own into the log."""
    file = secured.folder / "strange.pem"
    file.write_text(secured.certificates.authority.issue_client(name, now()).key_store)
    context = ssl.create_default_context(cafile=str(secured.certificates.ca))
    context.load_cert_chain(file)
    request = DescribeUserScramCredentialsRequest(users=None)
    with raw(secured, "SSL") as connection:
        connection.sock = context.wrap_socket(connection.sock, server_hostname="127.0.0.1")
        try:
            asked = connection.call(request, 0, DescribeUserScramCredentialsResponse)
        except (OSError, AssertionError):
            return
    assert asked.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "broker.unexpected-error" not in secured.logs.events()


def failure(settings: dict[str, Any]) -> str:
    """Return the last error of an administrator that gives up soon, but not before it has connected once."""
    error = ""
    for timeout_ms in (1_000, 10_000, 60_000):
        with (
            client.Admin(**settings, default_api_timeout_ms=timeout_ms) as admin,
            pytest.raises(BarnabasError) as caught,
        ):
            admin.list_topics()
        error = str(caught.value)
        if "security_protocol" in error:
            break
    return error


def test_wrong_security_protocol_is_explained(secured: SecuredBroker) -> None:
    plain = {"bootstrap": secured.address("SASL_SSL")}
    assert "check that security_protocol fits this listener" in failure(plain)
    tls = secured.client("SSL") | {"bootstrap": secured.address("PLAINTEXT")}
    assert "check that this listener uses TLS (security_protocol)" in failure(tls)


def test_listener_logs_that_a_client_does_not_use_tls(secured: SecuredBroker) -> None:
    def is_logged_after_a_connection() -> bool:
        # The listener counts failed handshakes instead of logging them after ten in ten seconds, also of other tests.
        with raw(secured, "SSL") as connection:
            connection.send(connection.frame(ApiVersionsRequest(), 3))
            assert connection.is_closed_by_peer()
        return "does not use TLS" in secured.logs.text()

    wait_until(is_logged_after_a_connection, "the listener logs the failed handshake")


# --- requests of clients that have not authenticated ------------------------------------------------------------


@contextlib.contextmanager
def raw(broker: SecuredBroker, listener: str = "SASL_PLAINTEXT") -> Iterator[RawConnection]:
    connection = RawConnection(broker.port(listener))
    try:
        yield connection
    finally:
        connection.sock.close()


def scram(password: str = PASSWORD, user: str = USER) -> ScramClient:
    return ScramClient(ScramMechanism.SHA_256, user, password, new_nonce())


def begin(connection: RawConnection, mechanism: str = "SCRAM-SHA-256", version: int = 1) -> SaslHandshakeResponse:
    found = connection.call(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)
    assert isinstance(found, SaslHandshakeResponse)
    return found


def step(connection: RawConnection, message: bytes) -> SaslAuthenticateResponse:
    found = connection.call(SaslAuthenticateRequest(auth_bytes=message), 2, SaslAuthenticateResponse)
    assert isinstance(found, SaslAuthenticateResponse)
    return found


def authenticate(connection: RawConnection, exchange: ScramClient | None = None) -> SaslAuthenticateResponse:
    """Authenticate with SCRAM; return the last response."""
    exchange = exchange or scram()
    assert begin(connection).error_code == 0
    response = step(connection, exchange.first())
    while not response.error_code and not exchange.is_complete:
        message = exchange.respond(bytes(response.auth_bytes))
        if not exchange.is_complete:
            response = step(connection, message)
    return response


def send_raw(connection: RawConnection, message: bytes) -> bytes:
    connection.send(len(message).to_bytes(4, "big") + message)
    return connection.receive()


def test_handshake_version_0_continues_with_raw_frames(secured: SecuredBroker) -> None:
    with raw(secured) as connection:
        assert begin(connection, version=0).error_code == 0
        exchange = scram()
        message = exchange.respond(send_raw(connection, exchange.first()))
        exchange.respond(send_raw(connection, message))
        assert exchange.is_complete
        assert connection.call(MetadataRequest(topics=None), 9, MetadataResponse).brokers


def test_failed_authentication_with_raw_frames_ends_the_connection(secured: SecuredBroker) -> None:
    with raw(secured) as connection:
        begin(connection, version=0)
        exchange = scram("wrong")
        message = exchange.respond(send_raw(connection, exchange.first()))
        connection.send(len(message).to_bytes(4, "big") + message)
        assert connection.is_closed_by_peer()


def test_client_without_session_may_send_three_apis(secured: SecuredBroker) -> None:
    with raw(secured) as connection:
        assert connection.call(ApiVersionsRequest(), 3, ApiVersionsResponse).error_code == 0
        assert authenticate(connection).error_code == 0
        assert connection.call(MetadataRequest(topics=None), 9, MetadataResponse).brokers
    with raw(secured) as connection:
        connection.send(connection.frame(MetadataRequest(topics=None), 9))
        assert connection.is_closed_by_peer()
    with raw(secured) as connection:
        begin(connection)
        connection.send(connection.frame(MetadataRequest(topics=None), 9))
        assert connection.is_closed_by_peer()


def test_messages_out_of_order_are_refused(secured: SecuredBroker) -> None:
    with raw(secured) as connection:
        assert step(connection, b"n,,n=alice,r=0123456789abcdef").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()
    with raw(secured) as connection:
        begin(connection)
        assert begin(connection).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()
    with raw(secured) as connection:
        refused = begin(connection, "GSSAPI")
        assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert refused.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert connection.is_closed_by_peer()
    with raw(secured, "PLAINTEXT") as connection:
        assert begin(connection).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()


def test_mechanism_that_a_listener_does_not_offer_cannot_be_used(secured: SecuredBroker) -> None:
    """A client that began with SCRAM cannot continue with PLAIN, which the listener offers only with TLS."""
    with raw(secured) as connection:
        begin(connection)
        assert step(connection, encode_plain(USER, PASSWORD)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()


# --- sessions that end ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"connections.max.reauth.ms": "1000"}
    with secured_broker(tmp_path_factory.mktemp("sessions"), **settings) as broker:
        yield broker


def test_clients_authenticate_again_without_an_error(short_sessions: SecuredBroker) -> None:
    settings = short_sessions.client("SASL_PLAINTEXT")
    with client.Admin(**settings) as admin:
        admin.create_topic("sessions")
    accepted = short_sessions.listener("SASL_PLAINTEXT").accepted_count
    with client.Producer(**settings) as producer, client.Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([("sessions", 0)])
        ends_s, number, found = time.monotonic() + 3.2, 0, 0
        while time.monotonic() < ends_s:
            producer.send("sessions", b"%d" % number).result(IN_USE)
            number += 1
            found += len(consumer.poll(timeout_s=0.05))
        while found < number:
            found += len(consumer.poll(timeout_s=IN_USE))
    assert found == number
    connections = short_sessions.listener("SASL_PLAINTEXT").accepted_count - accepted
    assert connections < 12, "the clients keep their connections"


def test_client_that_does_not_authenticate_again_is_disconnected(short_sessions: SecuredBroker) -> None:
    with raw(short_sessions) as connection:
        response = authenticate(connection)
        assert response.session_lifetime_ms == 1_000
        ends_s = time.monotonic() + 1.0
        assert connection.call(MetadataRequest(topics=None), 9, MetadataResponse).brokers
        wait_until(lambda: time.monotonic() > ends_s, "the session ends")
        connection.send(connection.frame(MetadataRequest(topics=None), 9))
        assert connection.is_closed_by_peer()


def test_session_can_be_renewed_after_its_end(short_sessions: SecuredBroker) -> None:
    with raw(short_sessions) as connection:
        authenticate(connection)
        ends_s = time.monotonic() + 1.0
        wait_until(lambda: time.monotonic() > ends_s, "the session ends")
        assert authenticate(connection).error_code == 0
        assert connection.call(MetadataRequest(topics=None), 9, MetadataResponse).brokers


def test_authentication_as_another_principal_or_mechanism_ends_the_session(short_sessions: SecuredBroker) -> None:
    with raw(short_sessions) as connection:
        authenticate(connection)
        assert begin(connection, "SCRAM-SHA-512").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()
    with raw(short_sessions) as connection:
        authenticate(connection)
        assert begin(connection, version=0).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()


def test_waiting_clients_keep_their_connections_over_sessions(short_sessions: SecuredBroker) -> None:
    """A fetch that waits delays the authentication, possibly until after the end of the session."""
    settings = short_sessions.client("SASL_PLAINTEXT")
    with client.Admin(**settings) as admin:
        admin.create_topic("idle")
    listener = short_sessions.listener("SASL_PLAINTEXT")
    with client.Consumer(**settings, group="idle") as consumer:
        consumer.subscribe(["idle"])
        consumer.poll(timeout_s=0.5)
        accepted, ends_s = listener.accepted_count, time.monotonic() + 2.5
        while time.monotonic() < ends_s:
            consumer.poll(timeout_s=0.2)
        # A busy machine may wake a client too late. Without the second authentication, there would be eight.
        assert listener.accepted_count - accepted <= 3


@pytest.mark.parametrize("error", [RuntimeError("planted"), KeyError("planted")])
def test_error_of_the_token_function_is_an_authentication_error(secured: SecuredBroker, error: Exception) -> None:
    def token() -> str:
        raise error

    for text in refusals("refused", secured.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=token)):
        assert type(error).__name__ in text
        assert "planted" not in text


def test_client_asks_again_for_a_token_while_the_provider_is_unreachable(secured: SecuredBroker) -> None:
    errors: list[Exception] = [ConnectionRefusedError("planted"), TimeoutError("planted")]

    def token() -> str:
        if errors:
            raise errors.pop()
        return secured.tokens.token()

    with client.Admin(**secured.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=token)) as admin:
        admin.list_topics()
    assert not errors


def test_session_ends_with_its_token(secured: SecuredBroker) -> None:
    """The client fetches another token before the first one expires."""
    fetched = []

    def token() -> str:
        fetched.append(time.monotonic())
        return secured.tokens.token(exp=int(time.time()) + 2)

    settings = secured.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=token)
    with client.Admin(**settings) as admin:
        admin.list_topics()
        wait_until(lambda: len(fetched) > 1, "the client authenticates again")
        admin.list_topics()


# --- certificates that change -----------------------------------------------------------------------------------


def presented(broker: SecuredBroker) -> str:
    return ssl.get_server_certificate(("127.0.0.1", broker.port("SASL_SSL")), timeout=IN_USE)


def test_changed_certificate_is_used_for_new_connections_only(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker, client.Producer(**broker.client()) as producer:
        producer.send("clicks", b"first").result(IN_USE)
        before, accepted = presented(broker), broker.listener("SASL_SSL").accepted_count

        valid = broker.key_store.read_text()
        broker.key_store.write_text(valid[: len(valid) // 2])
        broker.reload()
        assert broker.logs.events().count("tls.not-reloaded") == 2, "one for each listener with TLS"
        assert presented(broker) == before
        broker.reload()
        assert broker.logs.events().count("tls.not-reloaded") == 2, "each change is reported once"

        broker.certificates.server("broker")
        broker.reload()
        assert presented(broker) != before
        producer.send("clicks", b"second").result(IN_USE)
        assert broker.listener("SASL_SSL").accepted_count == accepted + 2, "the producer keeps its connections"
        use("renewed", broker.client())
    assert valid.splitlines()[1] not in broker.logs.text()


# --- protected by default ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"host": "0.0.0.0"},
        {"listeners": "PLAINTEXT://:0"},
        {"listeners": "SSL://0.0.0.0:0", "ssl.client.auth": "requested"},
        {"listeners": "PLAINTEXT://127.0.0.1:0,OPEN://0.0.0.0:0", "listener.security.protocol.map": "OPEN:PLAINTEXT"},
    ],
)
def test_open_listener_needs_permission(tmp_path: Path, settings: dict[str, str]) -> None:
    config = load_config(overrides={"data": str(tmp_path), **settings}, environment={})
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(Broker(config).start())
    assert "--allow-anonymous" in str(caught.value)
    assert "0.0.0.0" in str(caught.value)
