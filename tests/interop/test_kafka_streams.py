"""Kafka Streams counts words; it is killed, and goes on elsewhere from its changelog topic.

The program is `java/WordCount.java`. Kafka Streams makes the topics that it needs for itself: one by which words reach
the task that counts them, whose records it deletes when they are counted, and a compacted one that backs the counts.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from tests.interop.clients.ours import Ours
from tests.interop.conftest import COMPACTS_SOON
from tests.interop.java import maven
from tests.interop.java.program import Program, Run
from tests.support.broker_process import BrokerProcess
from tests.support.reading import gaps, wait_until
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

VERSION = "4.3.0"
SOURCE = Path(__file__).parent / "java" / "WordCount.java"
PARTITIONS = 2
VOCABULARY = [f"word-{number}" for number in range(40)]
REPARTITIONED = "word-count-counts-repartition"
CHANGELOG = "word-count-counts-changelog"
BROKER_SETTINGS = COMPACTS_SOON | {"group_min_session_timeout_ms": "500"}
SETTINGS = [
    "num.stream.threads=2",
    "commit.interval.ms=200",
    "statestore.cache.max.bytes=0",  # every count goes into the changelog, and not each word's last before a commit
    "repartition.purge.interval.ms=500",
    "main.consumer.session.timeout.ms=3000",
    "main.consumer.heartbeat.interval.ms=300",
    "main.consumer.auto.offset.reset=earliest",
    "metadata.max.age.ms=1000",
]

Start = Callable[..., Program]


class Lines:
    """Writes lines of random words into `lines`, and knows how often it has written each word."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = barnabas.Producer(bootstrap)
        self._random = random.Random(11)
        self.counts: Counter[str] = Counter()
        self.written = [0] * PARTITIONS

    def write(self, count: int) -> None:
        for _ in range(count):
            partition = self._random.randrange(PARTITIONS)
            words = self._random.choices(VOCABULARY, k=5)
            line = f"{partition} {self.written[partition]} {' '.join(words)}"
            self._producer.send("lines", line.encode(), partition=partition)
            self.written[partition] += 1
            self.counts.update(words)
        self._producer.flush(60)

    def close(self) -> None:
        self._producer.close(timeout_s=60)


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The folder with the jars of Kafka Streams."""
    return maven.jars(
        f"kafka-streams-{VERSION}", f"org.apache.kafka:kafka-streams:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"
    )


@pytest.fixture
def start(run_java: Run, libraries: Path, tmp_path: Path) -> Start:
    """Start the program with an empty folder for its state: `start(broker, "at_least_once")`."""
    class_path = f"{maven.classes(SOURCE, libraries)}:{libraries}/*"
    folders = iter(range(100))

    def start(broker: BrokerProcess, guarantee: str) -> Program:
        state = tmp_path / f"state-{next(folders)}"
        return run_java(["-cp", class_path, "WordCount", broker.bootstrap, str(state), guarantee, *SETTINGS])

    return start


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    broker = make_broker(**BROKER_SETTINGS)
    with barnabas.Admin(broker.bootstrap) as admin:
        for topic in ("lines", "counts"):
            admin.create_topic(topic, PARTITIONS)
    return broker


@pytest.fixture
def lines(broker: BrokerProcess) -> Iterator[Lines]:
    with contextlib.closing(Lines(broker.bootstrap)) as lines:
        yield lines


def last_values(bootstrap: str, topic: str) -> dict[str, int]:
    """Return for each key the number with which its last value begins."""
    with barnabas.Admin(bootstrap) as admin:
        ends = admin.end_offsets([(topic, partition) for partition in range(PARTITIONS)])
    with contextlib.closing(Ours().consumer(bootstrap, topic)) as consumer:
        found: dict[str, int] = {}
        reached = {place.partition: 0 for place in ends}
        wanted = {place.partition: end for place, end in ends.items()}
        while any(reached[partition] < end for partition, end in wanted.items()):
            for place, event in consumer.poll(1.0):
                assert event.key is not None
                assert event.value is not None
                found[event.key.decode()] = int(event.value.split()[0])
                reached[place.partition] = place.offset + 1
    return found


def test_counts_are_right_after_a_kill(broker: BrokerProcess, start: Start, lines: Lines) -> None:
    bootstrap = broker.bootstrap
    with barnabas.Admin(bootstrap) as admin:

        def committed(topic: str = "lines") -> list[int]:
            offsets = admin.group_offsets("word-count")
            found = (offsets.get(barnabas.TopicPartition(topic, each)) for each in range(PARTITIONS))
            return [each.offset if each else 0 for each in found]

        def has_counted() -> bool:
            """Whether all lines are split into words, all words are counted, and the counts are in the changelog."""
            ends = admin.end_offsets([(REPARTITIONED, each) for each in range(PARTITIONS)])
            return committed() == lines.written and committed(REPARTITIONED) == [ends[each] for each in sorted(ends)]

        first = start(broker, "at_least_once")
        first.wait_for("^state RUNNING")
        lines.write(1000)
        first.wait_until(has_counted, "it commits what it has counted")
        lines.write(1000)
        first.kill()
        kept = committed()
        lines.write(100)
        wait_until(lambda: gaps(bootstrap, CHANGELOG), "the changelog is compacted")

        second = start(broker, "at_least_once")
        second.wait_until(has_counted, "another one goes on")
        second.wait_until(lambda: last_values(bootstrap, "counts") == lines.counts, "all is counted once")
        assert last_values(bootstrap, CHANGELOG) == lines.counts
        restored = [int(line.split()[-1]) for line in second.said().splitlines() if line.startswith("restored ")]
        assert sum(restored) >= len(VOCABULARY)  # from the changelog: these lines were not read a second time
        assert sum(kept) >= 1000

        def purged() -> bool:
            places = [(REPARTITIONED, partition) for partition in range(PARTITIONS)]
            return admin.beginning_offsets(places) == admin.end_offsets(places)

        second.wait_until(purged, "it deletes what was counted from the topic between its tasks")
        assert admin.describe_config(CHANGELOG)["cleanup.policy"].value == "compact"
        assert admin.describe_config(REPARTITIONED)["cleanup.policy"].value == "delete"
        assert second.stop() == 143  # as asked by SIGTERM
        wait_until(lambda: not admin.describe_group("word-count").members, "its members have left or expired")


def test_exactly_once_is_refused_at_once(broker: BrokerProcess, start: Start, lines: Lines) -> None:
    """It needs transactions, which are not served: better a clear error than a program that waits."""
    lines.write(10)
    program = start(broker, "exactly_once_v2")
    program.wait_for("^failure .*this broker does not support transactions")
    program.wait()  # it ends by itself
    assert last_values(broker.bootstrap, "counts") == {}
