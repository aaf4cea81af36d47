"""Three brokers and a ZooKeeper server for measurements. Each broker can be stopped, killed and started separately."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas import Admin
from barnabas.client.admin.topics import PartitionDescription
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.errors import BarnabasError
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bench import processes
from bench.broker_process import MeasuredBroker
from bench.drivers.driver import flag_list
from bench.drivers.job import Outcome, parse_report
from bench.peers.barnabas import COMMAND
from bench.processes import RunningClient, ending_with_us
from bench.stalls.connection import Connection, Deadline

BROKERS = (1, 2, 3)
SESSION_S = 6
"""The session timeout of brokers in ZooKeeper. ZooKeeper's minimum is one second."""
LIMIT_S = 300.0
"""The time limit of each wait."""
ASKING_PAUSE_S = 0.1
"""The pause between two requests about a topic: with thousands of partitions, each response costs a broker milliseconds
of CPU time."""
TOPICS_VERSION = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the measurements.

    :param gigabytes: the amount of records that the follower has to fetch, in gigabytes.
    :param leaderships: the number of partitions that the killed broker leads.
    :param partitions: the number of replicas of each idle broker.
    :param resting_s: the duration of the idle measurement.
    :param records: the number of records for the cost per record.
    """

    gigabytes: float
    leaderships: int
    partitions: int
    resting_s: float
    records: int


SIZES = {
    "smoke": Sizes(gigabytes=0.05, leaderships=30, partitions=30, resting_s=1, records=100_000),
    "quick": Sizes(gigabytes=1, leaderships=2_000, partitions=1_000, resting_s=10, records=3_000_000),
    "full": Sizes(gigabytes=10, leaderships=2_000, partitions=1_000, resting_s=60, records=20_000_000),
}
"""The scale `smoke` only shows that the measurements work."""


class MeasuredCluster:
    """Three brokers and ZooKeeper with their defaults, except for a short session timeout. All processes end together.

    :param folder: an empty directory for all processes.
    """

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeperServers(folder / "zookeeper", wrap=lambda command: [*ending_with_us(), *command])
        self.brokers = {
            number: MeasuredBroker(
                folder / f"broker-{number}",
                broker_id=str(number),
                zookeeper_connect=self.zookeeper.address,
                zookeeper_session_timeout_ms=str(SESSION_S * 1000),
                default_replication_factor=str(len(BROKERS)),
            )
            for number in BROKERS
        }
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ending:
            ending.enter_context(self.zookeeper)
            for broker in self.brokers.values():
                ending.enter_context(broker)
            self._ending = ending.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.kill()  # nobody needs their data
        self._ending.close()

    @property
    def bootstrap(self) -> str:
        """The bootstrap addresses."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        """Create a topic, and wait until all its replicas are in sync.

        :param replicas: the replicas of each partition, the preferred leader first.
        """
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=[*brokers])
            for number, brokers in enumerate(replicas)
        ]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(LIMIT_S * 1000))
        connection = Connection(self.brokers[1].port, Deadline(LIMIT_S))
        try:
            connection.ask(request, TOPICS_VERSION, CreateTopicsResponse)
        finally:
            connection.close()
        self.wait_for(name, in_sync_as(replicas))

    def wait_for(
        self, topic: str, is_so: Callable[[Sequence[PartitionDescription]], bool], brokers: Iterable[int] = BROKERS
    ) -> float:
        """Wait until each of the given brokers reports partitions that meet a condition. Return the time
        (`time.monotonic`).
        """
        for number in brokers:
            with Admin(self.brokers[number].bootstrap) as admin:
                wait_until(lambda admin=admin: is_so(_partitions(admin, topic)), ASKING_PAUSE_S)  # type: ignore[misc]
        return time.monotonic()

    def perf(self, action: str, topic: str, **flags: object) -> RunningClient:
        """Start `barnabas perf`. Options have underscores instead of hyphens."""
        chosen = {"--bootstrap": self.bootstrap, "--topic": topic}
        chosen |= {f"--{name.replace('_', '-')}": str(value) for name, value in flags.items()}
        return RunningClient([*COMMAND, "perf", action, *flag_list(chosen), "--json"])

    def produce(self, topic: str, records: int, size: int = 100, acks: str = "1", mode: str = "send") -> Outcome:
        """Run `barnabas perf produce`, and return its result.

        :raises ClientError: if the client fails.
        """
        running = self.perf("produce", topic, records=records, size=size, acks=acks, mode=mode)
        return parse_report(running.finish(LIMIT_S).output)

    def zookeeper_cpu_s(self) -> float:
        """Return the CPU time that ZooKeeper has used."""
        return sum(processes.cpu_s(pid) for pid in self.zookeeper.pids if pid is not None)


def _partitions(admin: Admin, topic: str) -> Sequence[PartitionDescription]:
    """Return the partitions of a topic that a broker reports; empty if it does not have the topic yet."""
    try:
        return admin.describe_topics([topic])[0].partitions
    except BarnabasError:
        return ()


def in_sync_as(replicas: Sequence[Sequence[int]]) -> Callable[[Sequence[PartitionDescription]], bool]:
    """Return a condition: the partitions have these replicas, and all are in sync."""
    wanted = [{*brokers} for brokers in replicas]
    return lambda partitions: [{*each.isr} for each in partitions] == wanted


def wait_until(is_so: Callable[[], bool], pause_s: float = 0.02) -> None:
    """Wait until a condition is true.

    :raises RuntimeError: if the time limit is exceeded.
    """
    ends_s = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > ends_s:
            raise RuntimeError(f"the condition was not met within {LIMIT_S:g} s")
        time.sleep(pause_s)


def spread(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the replicas of each partition, so that all brokers lead the same number of partitions.

    >>> list(spread(3))
    [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    """
    for number in range(count):
        first = number % len(BROKERS)
        yield (*BROKERS[first:], *BROKERS[:first])


def led_by_first(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the replicas of each partition, so that broker 1 leads all of them. The other two brokers alternate as next
    leaders.

    >>> list(led_by_first(2))
    [(1, 2, 3), (1, 3, 2)]
    """
    for number in range(count):
        yield (1, 2, 3) if number % 2 == 0 else (1, 3, 2)
