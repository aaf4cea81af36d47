"""Sessions with ZooKeeper over TLS, client certificates, and the ACLs of nodes with secrets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.coordination import paths
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.zookeeper.answers import NotAllowedError
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.model import TopicPartition
from barnabas.net.tls import BlockingTls
from barnabas.security.tls_settings import TlsSettings
from tests.interop.java.maven import java
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Certificates
from tests.support.cluster_command import barnabas
from tests.support.ports import free_port
from tests.support.reading import wait_until
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import Sessions, new_chroot, sessions

pytestmark = pytest.mark.xdist_group(ZOOKEEPER)

OURS = {"auth": "barnabas:planted-password", "set_acl": True}
SECRETS = ("/config/users/alice", "/admin/scram_decoy_secret")
TLS_RECORD_BYTES = 16_384
IMPATIENT = {"connection_timeout_s": 1.0}
"""The settings of sessions that never begin."""


class SecuredServer(NamedTuple):
    """A ZooKeeper server with one port without TLS, and one that demands client certificates."""

    plain: str
    secure: str
    certificates: Certificates
    log: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    java()
    folder = tmp_path_factory.mktemp("zookeeper")
    certificates = Certificates(folder / "certificates")
    port = free_port()
    lines = (
        f"secureClientPort={port}",
        "secureClientPortAddress=127.0.0.1",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={certificates.server('zookeeper')}",
        f"ssl.trustStore.location={certificates.ca}",
        "ssl.keyStore.type=PEM",
        "ssl.trustStore.type=PEM",
        "ssl.clientAuth=need",
    )

    def with_tls(command: Sequence[str]) -> Sequence[str]:
        with Path(command[-1]).open("a") as configuration:
            configuration.write("\n".join(lines) + "\n")
        return command

    with ZooKeeperServers(folder, ports=[free_port()], wrap=with_tls) as servers:
        log = folder / "server-0" / "server.log"
        yield SecuredServer(servers.address, f"127.0.0.1:{port}", certificates, log)


@pytest.fixture
def opened(server: SecuredServer) -> Iterator[Sessions]:
    with sessions(server.plain + new_chroot()) as opened:
        yield opened


def over_tls(server: SecuredServer, opened: Sessions, **settings: object) -> dict[str, object]:
    """Return the options of a session over TLS with the certificate of a client."""
    return {
        "connect": opened.connect.replace(server.plain, server.secure),
        "secure": BlockingTls(
            TlsSettings(
                **{  # type: ignore[arg-type]
                    "trust_store": str(server.certificates.ca),
                    "key_store": str(server.certificates.client("broker")),
                    **settings,
                }
            )
        ),
    }


def test_session_over_tls_reads_writes_and_watches(server: SecuredServer, opened: Sessions) -> None:
    tree, other = opened.open(**over_tls(server, opened)), opened.open()
    large = bytes(20 * TLS_RECORD_BYTES)
    tree.create("/a/b", large, make_parents=True)
    for number in range(300):
        tree.create(f"/a/{number}", bytes(1_000))
    assert other.get("/a/b").data == tree.get("/a/b").data == large
    assert len(tree.subtree("/a")) == 301
    events: list[str] = []
    tree.get("/a/b", lambda event: events.append(event.path))
    other.set("/a/b", b"changed")
    wait_until(lambda: events == ["/a/b"], "the watch reports the change")
    tree._session._client._connection._socket.shutdown(2)
    assert tree.get("/a/b").data == b"changed"


def test_servers_without_a_valid_certificate_get_no_session(
    server: SecuredServer, opened: Sessions, tmp_path: Path
) -> None:
    stranger = Certificates(tmp_path, "another CA")
    with pytest.raises(MetadataStoreUnavailableError, match="the certificate is not accepted"):
        opened.open(**IMPATIENT, **over_tls(server, opened, trust_store=str(stranger.ca)))
    server_is_plain = {**over_tls(server, opened), "connect": opened.connect}
    with pytest.raises(MetadataStoreUnavailableError, match="the last TLS handshake failed"):
        opened.open(**IMPATIENT, **server_is_plain)


def test_certificate_must_name_the_host(server: SecuredServer, opened: Sessions) -> None:
    options = over_tls(server, opened)
    secure = options["secure"]
    hosts: list[str] = []

    def noting(sock: object, host: str, timeout_s: float) -> object:
        hosts.append(host)
        return secure(sock, "another.example", timeout_s)  # type: ignore[operator]

    options["secure"] = noting
    with pytest.raises(MetadataStoreUnavailableError, match=r"not valid for 'another\.example'"):
        opened.open(**IMPATIENT, **options)
    assert set(hosts) == {"127.0.0.1"}


def test_client_without_a_certificate_gets_no_session(server: SecuredServer, opened: Sessions) -> None:
    with pytest.raises(MetadataStoreUnavailableError):
        opened.open(**IMPATIENT, **over_tls(server, opened, key_store=None))


def test_certificate_is_the_identity_that_acls_demand(server: SecuredServer, opened: Sessions) -> None:
    ours = opened.open(**over_tls(server, opened), set_acl=True, has_certificate=True)
    ours.create("/config/users/alice", b"verifier", make_parents=True)
    another = opened.open(**over_tls(server, opened, key_store=str(server.certificates.client("another"))))
    for stranger in (opened.open(), another):
        with pytest.raises(NotAllowedError):
            stranger.get("/config/users/alice")
    again = opened.open(**over_tls(server, opened), set_acl=True, has_certificate=True)
    assert again.get("/config/users/alice").data == b"verifier"


def test_only_brokers_read_nodes_with_secrets(opened: Sessions) -> None:
    ours, stranger = opened.open(**OURS), opened.open()
    for path in (*SECRETS, "/config/topics/clicks"):
        ours.create(path, b"secret", make_parents=True)
    assert stranger.get("/config/topics/clicks").data == b"secret"
    for path in SECRETS:
        with pytest.raises(NotAllowedError, match=path):
            stranger.get(path)
    assert {opened.open(**OURS).get(path).data for path in SECRETS} == {b"secret"}


def test_existing_nodes_with_secrets_become_unreadable_for_others(
    opened: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    before = opened.open(auth=OURS["auth"])
    for path in SECRETS:
        before.create(path, b"secret", make_parents=True)
    ours = opened.open(**OURS)
    assert "could read 2 nodes with secrets; only brokers can read them now" in caplog.text
    for path in SECRETS:
        assert ours.get(path).data == b"secret"
        with pytest.raises(NotAllowedError):
            opened.open().get(path)
    caplog.clear()
    opened.open(**OURS)
    assert caplog.text == ""


def settings_of(server: SecuredServer, folder: Path, user: str) -> dict[str, str]:
    """Return the settings of TLS and of the user's password, which is in a file."""
    password = folder / f"{user}.password"
    password.write_text(f"{user}:planted-password\n")
    return {
        "zookeeper.auth": f"${{file:{password}}}",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(server.certificates.ca),
        "zookeeper.ssl.keystore.location": str(server.certificates.client(user)),
    }


@pytest.fixture
def broker(server: SecuredServer, opened: Sessions, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that protects its nodes, with the topic `clicks` and a user."""
    settings = {
        "zookeeper.connect": opened.connect.replace(server.plain, server.secure),
        "offsets.topic.replication.factor": "1",
        **settings_of(server, tmp_path, "barnabas"),
    }
    broker = BrokerProcess(tmp_path / "data", {name.replace(".", "_"): value for name, value in settings.items()})
    try:
        broker.start()
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("clicks")
            admin.set_user_password("alice", "planted-password-of-alice")
        yield broker
    finally:
        broker.close()
    for log in (broker.log, server.log):
        assert "planted-password" not in log.read_text()


def test_broker_keeps_users_in_zookeeper_over_tls(broker: BrokerProcess, opened: Sessions) -> None:
    stranger = opened.open()
    assert stranger.children("/brokers/topics") == ["clicks"]
    for path in (paths.user_config("alice"), paths.DECOY_SECRET):
        with pytest.raises(NotAllowedError):
            stranger.get(path)


def test_consumers_own_their_group_in_zookeeper_without_credentials_of_brokers(
    server: SecuredServer, broker: BrokerProcess, opened: Sessions, tmp_path: Path
) -> None:
    coordination = f"zookeeper://{opened.connect.replace(server.plain, server.secure)}"
    own = settings_of(server, tmp_path, "readers")
    settings = {"bootstrap.servers": broker.bootstrap, "coordination": coordination, "auto.offset.reset": "earliest"}
    with Producer(broker.bootstrap) as producer:
        producer.send("clicks", b"first").result()
    with Consumer({**settings, **own}, group="ctr") as consumer:
        consumer.subscribe(["clicks"])
        assert next(iter(consumer)).value == b"first"
        consumer.commit()
    stranger = opened.open()
    for path in (paths.group("ctr"), paths.group_offset("ctr", TopicPartition("clicks", 0))):
        with pytest.raises(NotAllowedError):
            stranger.set(path, b"changed")
    other = settings_of(server, tmp_path, "strangers")
    with Consumer({**settings, **other}, group="ctr") as consumer:
        consumer.subscribe(["clicks"])
        with pytest.raises(NotAllowedError, match=r"check zookeeper\.auth"):
            next(iter(consumer))
    command = ("group", "delete", "ctr", "-y", "-b", broker.bootstrap, "--zookeeper", coordination)
    refused, deleted = (
        barnabas(*command, *(part for name, value in one.items() for part in ("-X", f"{name}={value}")))
        for one in (other, own)
    )
    assert (refused.returncode, deleted.stdout) == (1, "deleted group ctr\n")
    assert "check zookeeper.auth" in refused.stderr


def test_command_sets_the_acls_of_an_existing_tree(server: SecuredServer, opened: Sessions, tmp_path: Path) -> None:
    before, stranger = opened.open(), opened.open()
    for path in (*SECRETS, "/brokers/topics/clicks", "/consumers/ctr/ids", "/other/nodes"):
        before.create(path, b"old", make_parents=True)
    config = tmp_path / "broker.toml"
    settings = {
        "zookeeper.connect": opened.connect.replace(server.plain, server.secure),
        **settings_of(server, tmp_path, "barnabas"),
    }
    config.write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
    command = ("security", "zookeeper-acls", "--config", config)
    shown = barnabas(*command, "--dry-run")
    assert shown.stdout == "would set the ACLs of 10 nodes; 0 nodes had the right ACL already\n"
    stranger.set("/brokers/topics/clicks", b"still open")
    done = barnabas(*command)
    assert (done.returncode, done.stdout) == (0, "set the ACLs of 10 nodes; 0 nodes had the right ACL already\n")
    assert "could read 2 nodes with secrets; change the passwords of all users" in done.stderr
    for path in (*SECRETS, "/brokers/topics/clicks", "/brokers", "/consumers", "/"):
        with pytest.raises(NotAllowedError):
            stranger.set(path, b"changed")
    for path in SECRETS:
        with pytest.raises(NotAllowedError):
            stranger.get(path)
    stranger.create("/consumers/others/ids", make_parents=True)
    stranger.set("/consumers/ctr", b"consumers' own")
    assert stranger.get("/brokers/topics/clicks").data == b"still open"
    assert opened.open(**OURS).get(SECRETS[0]).data == b"old"
    assert barnabas(*command).stdout == "set the ACLs of 0 nodes; 10 nodes had the right ACL already\n"


def test_command_reports_nodes_of_other_credentials(server: SecuredServer, opened: Sessions, tmp_path: Path) -> None:
    opened.open(auth="other:password", set_acl=True).create("/brokers/topics/clicks", make_parents=True)
    config = tmp_path / "broker.toml"
    settings = {
        "zookeeper.connect": opened.connect.replace(server.plain, server.secure),
        **settings_of(server, tmp_path, "barnabas"),
    }
    config.write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
    refused = barnabas("security", "zookeeper-acls", "--config", config)
    assert refused.returncode == 1
    assert "4 nodes belong to other credentials (/, /brokers, /brokers/topics)" in refused.stderr
