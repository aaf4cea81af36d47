"""Status pages with HTTPS and users: those of a broker with ACLs, and those of a process that logs in at the broker."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from typing import Any

import pytest

import barnabas
from barnabas.client.broker_login import blocking_prover
from barnabas.clock import SYSTEM_CLOCK
from barnabas.metrics.exposition import Snapshots
from barnabas.net.status_server import StatusPages, StatusServer
from barnabas.security.acls import Operation, ResourceType
from barnabas.security.http_settings import HttpSecurity
from tests.support.acl_grants import AUTHORIZER, allow, grant, revoke
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

BOB, BOBS_PASSWORD = "bob", "planted-password-of-bob"
INTER_BROKER_PASSWORD = "planted-password-of-brokers"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": AUTHORIZER, "sasl.inter.broker.password": INTER_BROKER_PASSWORD}
    with secured_broker(tmp_path_factory.mktemp("secured"), **settings) as running:
        with barnabas.Admin(**running.client()) as admin:
            admin.set_user_password(BOB, BOBS_PASSWORD)
        yield running


def admin_of(broker: SecuredBroker) -> dict[str, Any]:
    settings = broker.client()
    return {"bootstrap_servers": settings.pop("bootstrap"), **settings}


def security_of(broker: SecuredBroker) -> HttpSecurity:
    return HttpSecurity(certfile=str(broker.key_store))


@pytest.fixture(scope="module")
def of_broker(broker: SecuredBroker) -> Iterator[StatusServer]:
    """The pages of the broker itself."""
    snapshots = Snapshots(broker.broker.collect, SYSTEM_CLOCK, SYSTEM_CLOCK.sleep)
    pages = StatusPages(snapshots.pieces, lambda: True, broker.broker.not_ready)
    own = broker.broker
    server = StatusServer("0", pages, SYSTEM_CLOCK, security_of(broker), own.prove, own.may_see_metrics)
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def of_process(broker: SecuredBroker) -> Iterator[StatusServer]:
    """The pages of another process, such as a mirror."""
    pages = StatusPages(lambda: [b"the metrics\n"])
    server = StatusServer("0", pages, SYSTEM_CLOCK, security_of(broker), blocking_prover(admin_of(broker)))
    server.start()
    yield server
    server.close()


def get(broker: SecuredBroker, server: StatusServer, path: str, authorization: str = "") -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(broker.certificates.ca))
    port = int(server.url.rpartition(":")[2])
    with closing(HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context)) as connection:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        return response.status, response.read().decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(params=["of_broker", "of_process"])
def server(request: pytest.FixtureRequest) -> StatusServer:
    found: StatusServer = request.getfixturevalue(request.param)
    return found


def test_users_of_the_broker_see_metrics(broker: SecuredBroker, server: StatusServer) -> None:
    assert get(broker, server, "/metrics", basic(USER, PASSWORD))[0] == 200
    assert get(broker, server, "/metrics", f"Bearer {broker.tokens.token()}")[0] == 200
    for path in ("/healthz", "/readyz"):
        assert get(broker, server, path) == (200, "ok\n")


def test_strangers_see_no_metrics(broker: SecuredBroker, server: StatusServer) -> None:
    expired = broker.tokens.token(exp=1)
    for authorization in ("", basic(USER, "planted-wrong"), basic("nobody", PASSWORD), f"Bearer {expired}", "Bearer x"):
        assert get(broker, server, "/metrics", authorization) == (401, "Unauthorized\n")


def test_user_needs_permission_to_describe_the_cluster(broker: SecuredBroker, of_broker: StatusServer) -> None:
    bob = basic(BOB, BOBS_PASSWORD)
    assert get(broker, of_broker, "/metrics", bob) == (403, "User:bob may not describe the cluster\n")
    grant(admin_of(broker), *allow(BOB, ResourceType.CLUSTER, "", Operation.DESCRIBE))
    wait_until(lambda: get(broker, of_broker, "/metrics", bob)[0] == 200, "the ACL is in force")
    revoke(admin_of(broker), BOB)
    wait_until(lambda: get(broker, of_broker, "/metrics", bob)[0] == 403, "the ACL is revoked")


def test_process_asks_the_broker_for_the_permission(broker: SecuredBroker, of_process: StatusServer) -> None:
    carol = basic("carol", "carols-password")
    with barnabas.Admin(**broker.client()) as admin:
        admin.set_user_password("carol", "carols-password")
        admin.set_user_password("dave", "daves-password")
    assert get(broker, of_process, "/metrics", carol)[0] == 403
    grant(admin_of(broker), *allow("dave", ResourceType.CLUSTER, "", Operation.DESCRIBE))
    assert get(broker, of_process, "/metrics", basic("dave", "daves-password"))[0] == 200


def test_pages_and_log_contain_no_secret(broker: SecuredBroker, server: StatusServer) -> None:
    shown = [get(broker, server, path, basic(USER, PASSWORD))[1] for path in ("/metrics", "/healthz", "/readyz", "/x")]
    shown += [get(broker, server, "/metrics", basic(BOB, "planted-wrong"))[1], broker.logs.text()]
    for secret in (PASSWORD, BOBS_PASSWORD, INTER_BROKER_PASSWORD, "planted-wrong", "PRIVATE KEY"):
        assert secret not in "\n".join(shown)
