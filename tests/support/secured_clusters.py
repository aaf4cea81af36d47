"""Brokers with TLS, SCRAM and ACLs: of Barnabas as `barnabas security init` sets them up, or of Apache Kafka.

The brokers of Barnabas listen on 127.0.0.1, 127.0.0.2 and 127.0.0.3, so the generated settings are used unchanged,
except for those that a test adds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench.peers.kafka import KafkaCluster
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.reading import wait_until
from tests.support.zookeeper_servers import new_chroot, start_servers

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
BARNABAS = (sys.executable, "-m", "barnabas.cli.main")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
STOP_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 60
PLAIN = "PLAIN"
"""The name of the listener without TLS and authentication that some published tests need."""


@dataclass(frozen=True)
class Access:
    """The address of a cluster, and the credentials of one user.

    :param plain: the addresses of the listeners without TLS and authentication; empty without them.
    """

    bootstrap: str
    ca: Path
    user: str
    password: str
    plain: str = ""

    def of(self, user: str, password: str) -> Access:
        return replace(self, user=user, password=password)

    def java(self, prefix: str = "") -> dict[str, str]:
        """Return the settings of a Java client."""
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{login} required username="{self.user}" password="{self.password}";',
        }
        return {prefix + name: value for name, value in settings.items()}

    def librdkafka(self) -> dict[str, str]:
        """Return the settings of a client of librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanisms": MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def ours(self) -> dict[str, str]:
        """Return the settings of a client of Barnabas."""
        return {
            "bootstrap": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.ca),
            "sasl_mechanism": MECHANISM,
            "sasl_username": self.user,
            "sasl_password": self.password,
        }


def properties(settings: Mapping[str, str]) -> str:
    """Return the text of a file of settings for a Java program."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def secured_barnabas(
    folder: Path, settings: Mapping[str, str] | None = None, *, count: int = 3, with_plain: bool = False
) -> Iterator[Access]:
    """Yield the administrator's access to brokers, with ZooKeeper if there are several.

    :param settings: further settings of all brokers.
    :param with_plain: add a listener without TLS and authentication to each broker.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made, hosts = folder / "secured", HOSTS[:count]
    port, plain_port = free_port(), free_port()
    command = [*BARNABAS, "security", "init", str(made), "--port", str(port)]
    command += [word for host in hosts for word in ("--host", host)]
    with ExitStack() as stack:
        if count > 1:
            zookeeper = start_servers(folder / "zookeeper")
            stack.callback(zookeeper.stop)
            command += ["--inter-broker-port", str(free_port()), "--zookeeper", zookeeper.address + new_chroot()]
        subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S)
        started = []
        for host in hosts:
            own = made / host if count > 1 else made
            added = _added(own, host, plain_port if with_plain else 0, settings or {})
            started.append(stack.enter_context(_broker(folder / host, own, added)))
        for wait in started:
            wait()
        yield Access(
            ",".join(f"{host}:{port}" for host in hosts),
            made / "ca.pem",
            ADMIN,
            (made / "admin.password").read_text().strip(),
            ",".join(f"{host}:{plain_port}" for host in hosts) if with_plain else "",
        )


def _added(folder: Path, host: str, plain_port: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a test adds to those of `barnabas security init`."""
    added = dict(settings)
    if plain_port:
        given = _toml(folder / "broker.toml")
        added |= {
            name: f"{given[name]},{PLAIN}://{host}:{plain_port}" for name in ("listeners", "advertised.listeners")
        }
        names = [given.get("listener.security.protocol.map", ""), f"{PLAIN}:PLAINTEXT"]
        added["listener.security.protocol.map"] = ",".join(filter(None, names))
        added["allow.anonymous"] = "true"
    return added


def _toml(file: Path) -> dict[str, str]:
    """Return the settings of a generated file, which has one quoted name and value in each line."""
    lines = [line.partition(" = ") for line in file.read_text().splitlines() if " = " in line]
    return {name.strip('"'): str(json.loads(value)) for name, _, value in lines}


@contextmanager
def _broker(data: Path, own: Path, added: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Run a broker; yield a function that waits until it is ready.

    :param own: the folder with its generated settings.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
    given = {f"BARNABAS_{name.upper().replace('.', '_')}": value for name, value in added.items()}
    log = data.with_name(f"{data.name}.log")
    command = [*BARNABAS, "up", "--config", str(own / "broker.toml"), "--data", str(data)]
    with (
        log.open("ab") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=clean | given) as process,
    ):

        def wait() -> None:
            assert process.stdout
            assert process.stdout.readline().startswith(b"ready "), log.read_text()[-3_000:]

        try:
            yield wait
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


class _SecuredKafka(KafkaCluster):
    """Apache Kafka with three nodes, TLS, SCRAM and ACLs."""

    security_protocol = "SASL_SSL"

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.certificates = Certificates(folder / "pki")
        self._key_store = self.certificates.server("kafka")
        self._more = settings
        self.password = "admin-secret"

    def more_properties(self) -> str:
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        jaas = f'{login} required username="{ADMIN}" password="{self.password}";'
        return properties(
            {
                "inter.broker.listener.name": "SASL_SSL",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._key_store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.certificates.ca),
                "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas,
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": jaas,
                "authorizer.class.name": AUTHORIZER,
                # The controllers' connections are not authenticated.
                "super.users": f"User:{ADMIN};User:ANONYMOUS",
                **self._more,
            }
        )

    def format_options(self) -> Sequence[str]:
        return ("--add-scram", f"{MECHANISM}=[name={ADMIN},password={self.password},iterations=4096]")


@contextmanager
def secured_kafka(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Access]:
    """Yield the administrator's access to three nodes of Apache Kafka."""
    folder.mkdir(parents=True, exist_ok=True)
    kafka = _SecuredKafka(folder, settings or {})
    try:
        kafka.start()
        wait_until(kafka.serves, "all nodes listen")
        yield Access(kafka.address, kafka.certificates.ca, ADMIN, kafka.password)
    finally:
        kafka.stop()


KINDS = {
    "one broker": lambda folder: secured_barnabas(folder, count=1),
    "barnabas": secured_barnabas,
    "kafka": secured_kafka,
}
"""The values of the variable AUTHORIZATION. Three brokers are for `make suites SUITE=authorization`."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    """The administrator's access to secured brokers, by default to a single one."""
    kind = KINDS[os.environ.get("AUTHORIZATION", "one broker")]
    with kind(tmp_path_factory.mktemp("secured")) as access:
        yield access
