"""Each client authenticates with each mechanism: with the right secret, with a wrong one, and with an expired one.

An expired secret is a token or a certificate after its end, or the password of a deleted user. `make suites
SUITE=security` runs the whole matrix; the test runs of the project run one cell of each client.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.interop.clients.secured import PYTHON_CLIENTS, RefusedError, SecuredClient
from tests.interop.clients.secured_programs import BUILD_TIMEOUT_S, PROGRAMS
from tests.support.authenticating_broker import (
    EXPIRED,
    MECHANISMS,
    MTLS,
    MTLS_LISTENER,
    OUTCOMES,
    RIGHT,
    WITHOUT_TLS,
    WRONG,
    AuthenticatingBroker,
)
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

IS_COMPLETE = bool(os.environ.get("SECURITY_MATRIX"))
TOPIC = "matrix"
SAMPLE = {
    "barnabas": ("OAUTHBEARER", EXPIRED, "SASL_SSL"),
    "confluent-kafka": ("SCRAM-SHA-512", RIGHT, "SASL_PLAINTEXT"),
    "kafka-python": ("PLAIN", RIGHT, "SASL_SSL"),
    "aiokafka": ("SCRAM-SHA-256", WRONG, "SASL_SSL"),
    "franz-go": (MTLS, EXPIRED, MTLS_LISTENER),
    "sarama": ("OAUTHBEARER", RIGHT, "SASL_SSL"),
    "kafkajs": ("SCRAM-SHA-256", WRONG, "SASL_SSL"),
    "java": (MTLS, RIGHT, MTLS_LISTENER),
}
"""The cell of each client that always runs."""

CLIENTS = [*PYTHON_CLIENTS, *PROGRAMS]
ALL_CELLS = [
    (client, mechanism, outcome, MTLS_LISTENER if mechanism == MTLS else "SASL_SSL")
    for client, mechanism, outcome in itertools.product(CLIENTS, MECHANISMS, OUTCOMES)
] + [(client, mechanism, RIGHT, "SASL_PLAINTEXT") for client, mechanism in itertools.product(CLIENTS, WITHOUT_TLS)]
CELLS = [cell for cell in ALL_CELLS if IS_COMPLETE or SAMPLE[cell[0].name] == cell[1:]]
_numbers = itertools.count(1)


def _name(value: object) -> str:
    return value if isinstance(value, str) else value.name  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthenticatingBroker]:
    """A broker with users, for all tests of this module."""
    broker = AuthenticatingBroker(tmp_path_factory.mktemp("secured") / "broker")
    try:
        broker.start()
        broker.create_users()
        yield broker
    finally:
        broker.close()


@pytest.mark.parametrize(("client", "mechanism", "outcome", "listener"), CELLS, ids=_name)
def test_only_the_right_secret_gives_access(
    secured: AuthenticatingBroker, client: SecuredClient, mechanism: str, outcome: str, listener: str, record_property
) -> None:
    access, value = secured.access(mechanism, outcome, listener), f"value {next(_numbers)}"
    if outcome == RIGHT:
        assert client.exchange(access, TOPIC, value) == value
        return
    with pytest.raises(RefusedError) as refused:
        client.exchange(access, TOPIC, value)
    record_property("report", str(refused.value))
    for secret in (access.password, access.token):
        assert not secret or secret not in str(refused.value)
