"""Throughput over TLS and 1,000 simultaneous connections, beside Apache Kafka; and the cost of ACLs.

    python -m bench.secured                   all; some minutes
    python -m bench.secured throughput --rounds 5
    python -m bench.secured connections
    python -m bench.secured acls --rounds 7
    python -m bench.secured --json FILE       also writes the figures as data

Both brokers get the same PEM files, and run in turn. Throughput: a producer and a consumer, of librdkafka and of
Barnabas, with records of 100 bytes; Barnabas also without TLS. Connections: the time until all clients of one process
have authenticated with TLS and SCRAM-SHA-256, and the longest wait of a client that has connected before. ACLs:
producers of one broker with 1,000 ACLs, and of one without an authorizer. Their clients authenticate with
SCRAM-SHA-256.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import barnabas
from barnabas.client.config import AdminConfig
from barnabas.client.security import connection_security
from barnabas.net.client_connection import dial
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.authority import Authority
from barnabas.security.protocols import SecurityProtocol
from barnabas.security.scram import ScramMechanism, credential_from_password
from barnabas.security.secrets import Secret
from bench.arena import fresh_folder
from bench.compare.verdicts import Measurement, cpu_ratio_of, interval_of, ratios_of, verdict_of
from bench.figures import interruptible, parent_of, parser_of, refuse_unknown, show
from bench.peers.barnabas import COMMAND, Barnabas
from bench.peers.kafka import Kafka
from bench.peers.server import KafkaServer, free_port
from bench.processes import ServerProcess
from bench.tables import table

USER, PASSWORD = "alice", "alice-secret"
MECHANISM = ScramMechanism.SHA_256
CONSUMED = 2_000_000
PRODUCED = {"confluent": 2_000_000, "send": 4_000_000, "send_many": 12_000_000}
"""The number of records by client. Each producer runs for about a second, so that the broker's CPU time is meaningful.
"""
ROUNDS = 3
CONNECTIONS = 1_000
ACLS = 1_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": MECHANISM.value,
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}
SIDES = {"without ACLs": "", "with ACLs": f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:ANONYMOUS\n"}
"""The settings of the two brokers of `acls`. The anonymous client of the other listener creates the ACLs."""
PRODUCERS = ("produce confluent", "produce send", "produce send_many")
CLIENTS = (*PRODUCERS, "consume confluent", "consume barnabas")
PING_INTERVAL_S = 0.003
PING_LEAD_S = 0.5
DIAL_TIMEOUT_S = 60.0
CLIENT_LIMIT_S = 180


@dataclass(frozen=True, slots=True)
class Pki:
    """The files of one CA."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        return self.folder / "server.pem"

    @property
    def users(self) -> Path:
        return self.folder / "users.json"

    @classmethod
    def create(cls, folder: Path) -> Pki:
        """Create the CA, a server certificate, and the credential of the user."""
        made, now = cls(folder), datetime.datetime.now(datetime.UTC)
        authority = Authority.create("bench CA", now)
        made.ca.write_text(authority.certificate)
        made.server.write_text(authority.issue_server(["127.0.0.1", "localhost"], now).key_store)
        credential = credential_from_password(MECHANISM, PASSWORD, os.urandom(16)).text()
        made.users.write_text(json.dumps({"users": {USER: {MECHANISM.value: credential}}}))
        return made


class SecuredBarnabas(Barnabas):
    """Barnabas with a secured listener at `port`, and one without TLS at `plain_port`."""

    def __init__(self, folder: Path, pki: Pki, protocol: str, more: str = "") -> None:
        super().__init__(folder)
        self._pki = pki
        self._protocol = protocol
        self._more = more
        self.plain_port = free_port()

    def launch(self) -> ServerProcess:
        config = self.folder / "broker.properties"
        config.write_text(
            f"listeners={self._protocol}://127.0.0.1:{self.port},PLAINTEXT://127.0.0.1:{self.plain_port}\n"
            f"ssl.keystore.location={self._pki.server}\nbootstrap.users.file={self._pki.users}\n{self._more}"
        )
        command = [*COMMAND, "up", "--config", str(config), "--data", str(self.folder / "data")]
        return ServerProcess(command, self.folder / "log", self.environment())


class SecuredKafka(Kafka):
    """Apache Kafka with a secured listener."""

    def __init__(self, folder: Path, pki: Pki, protocol: str) -> None:
        super().__init__(folder)
        self._pki = pki
        self.security_protocol = protocol

    def more_properties(self) -> str:
        jaas = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
        )
        return f"""\
inter.broker.listener.name={self.security_protocol}
listener.security.protocol.map={self.security_protocol}:{self.security_protocol},CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={self._pki.server}
ssl.truststore.type=PEM
ssl.truststore.location={self._pki.ca}
sasl.enabled.mechanisms={MECHANISM.value}
sasl.mechanism.inter.broker.protocol={MECHANISM.value}
listener.name.{self.security_protocol.lower()}.{MECHANISM.value.lower()}.sasl.jaas.config={jaas}
"""

    def format_options(self) -> Sequence[str]:
        credential = f"[name={USER},password={PASSWORD},iterations=4096]"
        return ("--add-scram", f"{MECHANISM.value}={credential}") if self.security_protocol == "SASL_SSL" else ()


KINDS = {"barnabas": SecuredBarnabas, "kafka": SecuredKafka}


@dataclass(frozen=True, slots=True)
class Figure:
    """A result of one broker: records per second, or the seconds and the longest wait of the connections."""

    case: str
    broker: str
    value: float
    wait_ms_max: float = 0.0
    cpu_s: float = 0.0


def servers(parent: Path, pki: Pki, protocol: str) -> Iterator[tuple[str, KafkaServer]]:
    """Yield each broker by name, while it runs."""
    for name, kind in KINDS.items():
        with fresh_folder(parent) as folder:
            server = kind(folder, pki, protocol)
            try:
                server.start()
                yield name, server
            finally:
                server.stop()


def throughput(parent: Path, pki: Pki, rounds: int) -> Iterator[Figure]:
    """Measure producers and consumers over TLS."""
    for _ in range(rounds):
        for name, server in servers(parent, pki, "SSL"):
            for case in CLIENTS:
                yield Figure(case, name, float(run_client(case, server.address, with_tls(pki))))
                if isinstance(server, SecuredBarnabas):
                    plain = f"127.0.0.1:{server.plain_port}"
                    yield Figure(case, "barnabas without TLS", float(run_client(case, plain, {})))


def connections(parent: Path, pki: Pki, rounds: int) -> Iterator[Figure]:
    """Measure simultaneous connections, and the waits of another client."""
    for _ in range(rounds):
        for name, server in servers(parent, pki, "SASL_SSL"):
            run_client("dial 50", server.address, with_tls(pki))
            with client_process("ping", server.address, with_tls(pki)) as pinger:
                assert pinger.stdin
                assert pinger.stdout
                pinger.stdout.readline()
                time.sleep(PING_LEAD_S)
                took_s = float(run_client(f"dial {CONNECTIONS}", server.address, with_tls(pki)))
                pinger.stdin.close()
                yield Figure("connections", name, took_s, float(pinger.stdout.readline()))


def acls(parent: Path, pki: Pki, rounds: int) -> Iterator[Figure]:
    """Measure producers of a broker with ACLs, and of one without."""
    for _ in range(rounds):
        for name, more in SIDES.items():
            with fresh_folder(parent) as folder:
                server = SecuredBarnabas(folder, pki, "SASL_PLAINTEXT", more)
                try:
                    server.start()
                    if more:
                        grant(f"127.0.0.1:{server.plain_port}")
                    for case in PRODUCERS:
                        before_s = server.cpu_s()
                        rate = float(run_client(case, server.address, SCRAM))
                        yield Figure(case, name, rate, cpu_s=server.cpu_s() - before_s)
                finally:
                    server.stop()


def grant(address: str) -> None:
    """Create ACLs for other users, and those that the measured user needs."""
    bindings = [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, f"topic-{number}-", PatternType(3 + number % 2)),
            AclEntry(f"User:user-{number}", "*", Operation.WRITE, Permission.ALLOW),
        )
        for number in range(ACLS - 1)
    ]
    own = AclEntry(f"User:{USER}", "*", Operation.ALL, Permission.ALLOW)
    bindings.append(AclBinding(ResourcePattern(ResourceType.TOPIC, "clicks"), own))
    with barnabas.Admin(address) as admin:
        admin.create_acls(bindings)


def with_tls(pki: Pki) -> dict[str, str]:
    """Return the settings of a client with TLS."""
    return {"security.protocol": "SSL", "ssl.ca.location": str(pki.ca)}


def client_process(case: str, address: str, security: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a client in a process of its own.

    :param security: settings that librdkafka and Barnabas understand.
    """
    command = [sys.executable, "-m", "bench.secured", "--client", case, address, json.dumps(security)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_client(case: str, address: str, security: Mapping[str, str]) -> str:
    """Run a client to its end; return its last line of output."""
    with client_process(case, address, security) as process:
        output, _ = process.communicate(timeout=CLIENT_LIMIT_S)
    if process.returncode:
        raise RuntimeError(f"the client {case} ended with exit code {process.returncode}")
    return output.split("\n")[-2]


# -- the clients, each in its own process --------------------------------------------------------------------------


def client(case: str, address: str, settings: str) -> None:
    """Run a client, and print its result."""
    kind, mode = case.partition(" ")[::2]
    security: dict[str, str] = json.loads(settings)
    if kind == "dial":
        result = asyncio.run(dial_many(address, security["ssl.ca.location"], int(mode)))
    elif kind == "ping":
        result = asyncio.run(ping(address, security["ssl.ca.location"]))
    else:
        result = {"produce": produce, "consume": consume}[kind](mode, address, security)
    sys.stdout.write(f"{result}\n")


def produce(mode: str, address: str, security: dict[str, str]) -> float:
    """Return the records per second of a producer with acks=1."""
    import confluent_kafka  # noqa: PLC0415 - each client imports only what it needs

    value, count = b"x" * 100, PRODUCED[mode]
    if mode == "confluent":
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "linger.ms": 5, "batch.size": 131_072, "acks": 1, **security}
        )
        began_s = time.perf_counter()
        for _ in range(count):
            while True:
                try:
                    producer.produce("clicks", value)
                    break
                except BufferError:
                    producer.poll(0.005)
        producer.flush()
        return count / (time.perf_counter() - began_s)
    with barnabas.Producer({"bootstrap.servers": address, "acks": 1, **security}) as ours:
        began_s = time.perf_counter()
        if mode == "send":
            for _ in range(count):
                ours.send("clicks", value)
        else:
            for _ in range(count // 1_000):
                ours.send_many("clicks", [value] * 1_000)
        ours.flush()
        return count / (time.perf_counter() - began_s)


def consume(mode: str, address: str, security: dict[str, str]) -> float:
    """Return the records per second of a consumer, from its first records on."""
    import confluent_kafka  # noqa: PLC0415 - each client imports only what it needs

    poll: Callable[[], Sequence[object]]
    if mode == "confluent":
        theirs = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "bench", **security})
        theirs.assign([confluent_kafka.TopicPartition("clicks", 0, 0)])
        poll = partial(theirs.consume, 10_000, 5)
    else:
        ours = barnabas.Consumer({"bootstrap.servers": address, "auto.offset.reset": "earliest", **security})
        ours.assign([barnabas.TopicPartition("clicks", 0)])
        poll = partial(ours.poll, max_records=10_000, timeout_s=5)
    count = len(poll())
    began_s, first = time.perf_counter(), count
    while count < CONSUMED:
        count += len(poll())
    return (count - first) / (time.perf_counter() - began_s)


def secured(ca: str) -> AdminConfig:
    return AdminConfig(
        security_protocol=SecurityProtocol.SASL_SSL,
        ssl_cafile=ca,
        sasl_mechanism=MECHANISM.value,
        sasl_username=USER,
        sasl_password=Secret(PASSWORD),
    )


async def dial_many(address: str, ca: str, count: int) -> float:
    """Return the seconds until all connections have authenticated."""
    security, (host, port) = connection_security(secured(ca)), address.split(":")
    began_s = time.perf_counter()
    dials = (dial(host, int(port), security=security, connect_timeout_s=DIAL_TIMEOUT_S) for _ in range(count))
    found = await asyncio.gather(*dials)
    took_s = time.perf_counter() - began_s
    for each in found:
        each.close()
    return took_s


async def ping(address: str, ca: str) -> float:
    """Send ApiVersions until standard input ends; return the longest wait in ms."""
    host, port = address.split(":")
    connection = await dial(host, int(port), security=connection_security(secured(ca)))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    longest_s = 0.0
    while not ended.done():
        began_s = time.perf_counter()
        await connection.send(ApiVersionsRequest(), version=0)
        longest_s = max(longest_s, time.perf_counter() - began_s)
        await asyncio.sleep(PING_INTERVAL_S)
    connection.close()
    return longest_s * 1_000


# -- the report -----------------------------------------------------------------------------------------------------


def lines(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the medians by case and broker, beside Kafka's."""
    rows = []
    for case in dict.fromkeys(each.case for each in figures if each.broker not in SIDES):
        of_case = [each for each in figures if each.case == case]
        medians = {
            broker: statistics.median(each.value for each in of_case if each.broker == broker)
            for broker in dict.fromkeys(each.broker for each in of_case)
        }
        for broker, value in medians.items():
            wait_ms = max(each.wait_ms_max for each in of_case if each.broker == broker)
            shown = f"{value:,.2f} s" if case == "connections" else f"{value:,.0f} records/s"
            rows.append(
                (case, broker, shown, f"{value / medians['kafka']:.2f}", f"{wait_ms:.1f} ms" if wait_ms else "")
            )
    if rows:
        yield from table(("case", "broker", "median", "of Kafka's", "longest wait of another client"), rows, 2)
    yield from cost_of_acls([each for each in figures if each.broker in SIDES])


def cost_of_acls(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the ratios of the broker with ACLs to the one without, with the limits of `make compare`."""
    rows = []
    for case in dict.fromkeys(each.case for each in figures):
        base, checkout = (
            [Measurement(each.value, each.cpu_s) for each in figures if (each.case, each.broker) == (case, side)]
            for side in SIDES
        )
        ratios = interval_of(ratios_of(base, checkout, is_rate=True))
        cpu_ratio = cpu_ratio_of(base, checkout)
        shown = f"{ratios.median:.3f} ({ratios.low:.3f} to {ratios.high:.3f})"
        rate = statistics.median(each.value for each in checkout)
        rows.append((case, f"{rate:,.0f}/s", shown, f"{cpu_ratio or 1:.3f}", verdict_of(ratios, cpu_ratio)))
    if rows:
        yield from table(("case", f"{ACLS:,} ACLs", "ratio to without", "CPU ratio", "verdict"), rows, 2)


CASES = {"throughput": throughput, "connections": connections, "acls": acls}


def main() -> int:
    """Measure, and print the medians."""
    if sys.argv[1:2] == ["--client"]:
        client(*sys.argv[2:5])
        return 0
    parser = parser_of("bench.secured", __doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="throughput, connections or acls [all]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each [{ROUNDS}]")
    asked = parser.parse_args()
    refuse_unknown(parser, asked.cases, CASES)
    figures: list[Figure] = []
    with interruptible(), fresh_folder(parent_of(asked)) as folder:
        pki = Pki.create(folder)
        for name, measure in CASES.items():
            if not asked.cases or name in asked.cases:
                figures += measure(folder, pki, asked.rounds)
    show(asked, "bench.secured", lines(figures), [asdict(each) for each in figures])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
