"""A cluster of three changes from plain to secured listeners, then its certificates and passwords, under load.

Each step restarts the brokers one by one, as an operator does it (docs/how-to/secure.md). No client gets an error, and
no record is lost or duplicated.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, UserScramCredentialUpsertion
from confluent_kafka.admin import ScramMechanism as KafkaMechanism

import barnabas as client
from barnabas.laboratory.history import History, Outcome, RecordedConsumer, RecordedProducer, check, read_to_the_end
from barnabas.security.scram import ScramMechanism, credential_from_password
from tests.interop.test_rolling_restart import PARTITIONS, Load
from tests.support.certificates import Certificates
from tests.support.listener_process import ListenerProcess
from tests.support.ports import free_port
from tests.support.process_cluster import Cluster, running_cluster
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(600)]

TOPIC = "clicks"
USER, OLD_PASSWORD, NEW_PASSWORD = "alice", "old password", "new password"
OLD, NEW = "SCRAM-SHA-256", "SCRAM-SHA-512"
"""The mechanisms of the old and of the new password. With two credentials, both passwords are valid for a while."""


class SecuredBroker(ListenerProcess):
    """A broker whose listeners change between its lives."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(data, settings)
        self.ports = {"PLAINTEXT": self.port, "SASL_SSL": free_port(), "BROKERS": free_port()}
        self.names = ["PLAINTEXT"]
        self.more: dict[str, str] = {}

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def properties(self) -> Mapping[str, str]:
        return {"listeners": ",".join(f"{each}://{self.address(each)}" for each in self.names), **self.more}

    @property
    def bootstrap(self) -> str:
        return self.address("PLAINTEXT" if "PLAINTEXT" in self.names else "SASL_SSL")


class SecuredCluster(Cluster):
    make_broker = SecuredBroker
    brokers: dict[int, SecuredBroker]  # type: ignore[assignment]

    def addresses(self, listener: str) -> str:
        return ",".join(each.address(listener) for each in self.brokers.values())

    def roll(self, names: list[str], more: Callable[[int], dict[str, str]], admin: dict[str, Any]) -> None:
        """Restart the brokers one by one with other listeners; wait until all replicas are in sync after each."""
        for number, broker in self.brokers.items():
            assert broker.stop() == 0
            broker.names, broker.more = names, more(number)
            broker.restart()
            with client.Admin(**admin) as asked:
                wait_until(lambda asked=asked: is_in_sync(asked, len(self.brokers)), "all replicas are in sync")

    def certificate_of(self, number: int) -> str:
        """Return the certificate that a broker presents to clients."""
        return ssl.get_server_certificate(("127.0.0.1", self.brokers[number].ports["SASL_SSL"]), timeout=TIMEOUT_S)


def is_in_sync(admin: client.Admin, count: int) -> bool:
    topics = admin.describe_topics([TOPIC])
    return all(len(each.isr) == count for topic in topics for each in topic.partitions)


class Clients:
    """A producer and a consumer of one group, at work until `end`."""

    def __init__(self, history: History, name: str, numbers: Iterator[int], **settings: Any) -> None:
        self._producer = RecordedProducer(history, client.Producer(**settings), f"producer {name}")
        reader = client.Consumer(group="readers", auto_offset_reset="earliest", **settings)
        self._consumer = RecordedConsumer(history, reader, f"consumer {name}")
        self._consumer.subscribe([TOPIC])
        self._numbers = numbers
        self._load = Load()
        self._load.begin(self._send)
        self._load.begin(self._consumer.poll)

    def _send(self) -> None:
        number = next(self._numbers)
        self._producer.send((TOPIC, number % PARTITIONS), b"%d" % number)

    def end(self) -> None:
        """Stop; raise the errors that the clients got."""
        self._load.stop()
        self._producer.flush(TIMEOUT_S)
        self._producer.close()
        self._consumer.close()


class Secrets:
    """The certificates, the users and the password files of the cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificates = Certificates(folder / "pki")
        self.users = folder / "users.json"
        credential = credential_from_password(ScramMechanism(OLD), OLD_PASSWORD, os.urandom(16)).text()
        self.users.write_text(json.dumps({"users": {USER: {OLD: credential}}}))

    def issue(self) -> None:
        """Write a new certificate for each broker."""
        for number in (1, 2, 3):
            self.certificates.server(f"broker-{number}")

    def of_broker(self, *, main: str, additional: str = "") -> Callable[[int], dict[str, str]]:
        """Return the settings of a broker, by its id.

        :param main: the listener for connections to other brokers.
        :param additional: another listener that serves brokers.
        """
        return lambda number: {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,BROKERS:SSL",
            "inter.broker.listener.name": main,
            "inter.broker.additional.listener.names": additional,
            "listener.name.brokers.ssl.client.auth": "required",
            "ssl.keystore.location": str(self.certificates.folder / f"broker-{number}.pem"),
            "ssl.truststore.location": str(self.certificates.ca),
            "bootstrap.users.file": str(self.users),
            "super.users": ";".join([f"User:{USER}", *(f"User:CN=broker-{each}" for each in (1, 2, 3))]),
        }

    def of_client(self, mechanism: str, password: str) -> dict[str, Any]:
        """Return the settings of a client, which reads its password from a file."""
        file = self._folder / f"{mechanism}.password"
        file.write_text(password)
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.certificates.ca),
            "sasl_mechanism": mechanism,
            "sasl_username": USER,
            "sasl_password": f"${{file:{file}}}",
        }


def test_cluster_becomes_secure_and_rotates_its_secrets_under_load(tmp_path: Path) -> None:
    secrets, numbers = Secrets(tmp_path), iter(range(10**9))
    secrets.issue()
    path = tmp_path / "run.history"
    with running_cluster(tmp_path, {}, SecuredCluster) as cluster, History(path) as history:
        plain = {"bootstrap": cluster.addresses("PLAINTEXT")}
        with client.Admin(**plain) as admin:
            admin.create_topic(TOPIC, PARTITIONS, 3)
        both = ["PLAINTEXT", "SASL_SSL", "BROKERS"]
        on_plain = Clients(history, "plain", numbers, **plain)
        cluster.roll(both, secrets.of_broker(main="REPLICATION", additional="BROKERS"), plain)
        cluster.roll(both, secrets.of_broker(main="BROKERS", additional="REPLICATION"), plain)
        safe = {"bootstrap": cluster.addresses("SASL_SSL"), **secrets.of_client(OLD, OLD_PASSWORD)}
        on_sasl = Clients(history, "old password", numbers, **safe)
        on_plain.end()
        cluster.roll(["SASL_SSL", "BROKERS"], secrets.of_broker(main="BROKERS"), safe)

        before = cluster.certificate_of(1)
        secrets.issue()  # brokers load changed files, and open connections continue
        wait_until(lambda: cluster.certificate_of(1) != before, "the broker presents its new certificate")
        # The other mechanism gets the new password, so the old one stays valid until all clients have changed.
        add_password(cluster.addresses("SASL_SSL"), str(secrets.certificates.ca))
        renewed = {"bootstrap": cluster.addresses("SASL_SSL"), **secrets.of_client(NEW, NEW_PASSWORD)}
        on_new = Clients(history, "new password", numbers, **renewed)
        on_sasl.end()
        on_new.end()
        read_to_the_end(history, renewed.pop("bootstrap"), [TOPIC], **renewed)
    report = check(path)
    assert report.ok, report
    assert not report.sends[Outcome.FAIL]
    assert not report.sends[Outcome.INFO]


def add_password(bootstrap: str, ca: str) -> None:
    """Give the user another password for the other mechanism, with librdkafka's administrator."""
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": ca,
            "sasl.mechanism": OLD,
            "sasl.username": USER,
            "sasl.password": OLD_PASSWORD,
        }
    )
    info = ScramCredentialInfo(KafkaMechanism.SCRAM_SHA_512, 4_096)
    change = UserScramCredentialUpsertion(USER, info, NEW_PASSWORD.encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(TIMEOUT_S)
