"""Sessions with ZooKeeper over TLS, and nodes that only brokers with the right credentials may read or change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import barnabas as client
from barnabas.coordination import paths
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.zookeeper.config import ZooKeeperConfig, ZooKeeperTls
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from tests.interop.java.maven import java
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS)]

AUTH = "broker:letmein"


class SecuredZooKeeper:
    """A server with a port for TLS, which demands client certificates, and a plain port."""

    def __init__(self, folder: Path) -> None:
        java()
        self.certificates = Certificates(folder / "pki")
        self.port = free_port()
        store = self.certificates.server("zookeeper")
        self.servers = ZooKeeperServers(
            folder / "zookeeper",
            ports=[free_port()],
            settings=[
                f"secureClientPort={self.port}",
                "secureClientPortAddress=127.0.0.1",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"ssl.keyStore.location={store}",
                "ssl.keyStore.type=PEM",
                f"ssl.trustStore.location={self.certificates.ca}",
                "ssl.trustStore.type=PEM",
                "ssl.clientAuth=need",
            ],
        )
        self.servers.start()

    def tls(self, **changes: object) -> ZooKeeperTls:
        given = {
            "trust_store": str(self.certificates.ca),
            "key_store": str(self.certificates.client("broker")),
            **changes,
        }
        return ZooKeeperTls(**given)  # type: ignore[arg-type]

    def config(self, tls: ZooKeeperTls | None, **changes: object) -> ZooKeeperConfig:
        given: dict[str, object] = {"session_timeout_s": 10.0, "connection_timeout_s": 30.0, **changes}
        return ZooKeeperConfig(f"127.0.0.1:{self.port}", tls=tls, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    made = SecuredZooKeeper(tmp_path_factory.mktemp("secured"))
    yield made
    made.servers.stop()


def test_session_over_tls_reads_and_writes(zookeeper: SecuredZooKeeper) -> None:
    store = ZooKeeperMetadataStore(zookeeper.config(zookeeper.tls()))
    try:
        store.create("/over-tls", b"data")
        assert store.get("/over-tls").data == b"data"
    finally:
        store.close()


@pytest.mark.parametrize("wrong", ["no TLS", "another CA", "no client certificate"])
def test_session_without_the_right_certificates_is_refused(
    zookeeper: SecuredZooKeeper, tmp_path: Path, wrong: str
) -> None:
    other = Certificates(tmp_path, "other CA")
    tls = {
        "no TLS": None,
        "another CA": zookeeper.tls(trust_store=str(other.ca)),
        "no client certificate": zookeeper.tls(key_store=None),
    }[wrong]
    with pytest.raises(MetadataStoreUnavailableError):
        ZooKeeperMetadataStore(zookeeper.config(tls, connection_timeout_s=2.0, session_timeout_s=2.0))


def test_broker_over_tls_hides_its_secrets(zookeeper: SecuredZooKeeper, tmp_path: Path) -> None:
    plain = f"127.0.0.1:{zookeeper.servers.ports[0]}"
    broker = BrokerProcess(
        tmp_path / "broker",
        {
            "zookeeper_connect": f"127.0.0.1:{zookeeper.port}",
            "zookeeper_ssl_client_enable": "true",
            "zookeeper_ssl_truststore_location": str(zookeeper.certificates.ca),
            "zookeeper_ssl_keystore_location": str(zookeeper.certificates.client("broker")),
            "zookeeper_auth": AUTH,
        },
    )
    broker.start()
    try:
        with client.Admin(broker.bootstrap) as admin:
            admin.set_user_password("alice", "planted")
        stranger = KazooClient(plain)
        stranger.start()
        try:
            for path in (paths.user_config("alice"), paths.DECOY_SECRET):
                with pytest.raises(NoAuthError):
                    stranger.get(path)
                with pytest.raises(NoAuthError):
                    stranger.set(path, b"{}")
            assert stranger.get("/cluster/id")  # nodes without secrets are readable
            with pytest.raises(NoAuthError):
                stranger.set("/cluster/id", b"{}")
        finally:
            stranger.stop()
            stranger.close()
    finally:
        assert broker.stop() == 0
    assert "planted" not in broker.log.read_text()
    assert "letmein" not in broker.log.read_text()
