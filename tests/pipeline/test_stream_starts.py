"""Where streams start, for each way to say what is read: and that they go on from there. No JVM runs here.

The combinations are those of the tests of Spark's own Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, product
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.spark.options import parse_stream_options
from barnabas.spark.stream_reader import BarnabasStreamReader
from tests.support.broker_process import BrokerProcess

PARTITIONS = 5
START_MS = 1_700_000_000_000
TOPICS = (f"topic-{number}" for number in count())
STARTS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "earliest": ({"startingOffsets": "earliest"}, [3, 3, 3, 3, 3]),
    "latest": ({"startingOffsets": "latest"}, [0, 0, 0, 0, 0]),
    "offsets": ({"startingOffsets": {"0": -2, "1": -1, "2": 0, "3": 1, "4": 2}}, [3, 0, 3, 2, 1]),
    "times": ({"startingOffsetsByTimestamp": {str(p): START_MS + min(p, 2) for p in range(5)}}, [3, 2, 1, 1, 1]),
    "time": ({"startingTimestamp": START_MS + 1}, [2, 2, 2, 2, 2]),
}
"""Options, and how many of the three records of each partition are read with them."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = BrokerProcess(tmp_path_factory.mktemp("starts") / "broker")
    try:
        broker.start()
        yield broker.bootstrap
    finally:
        broker.close()


class Run:
    """One run of a query, from where the last one ended."""

    def __init__(self, options: dict[str, str], at: dict[str, Any] | None = None) -> None:
        self.reader = BarnabasStreamReader(parse_stream_options(options), ["value"])
        self.at = self.reader.initialOffset() if at is None else at

    def next_values(self) -> list[int]:
        """Run batches until there is nothing more, and return what they had."""
        values: list[int] = []
        is_first = True
        while (end := self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())) != self.at or is_first:
            is_first = False
            for part in self.reader.partitions(self.at, end):
                values += [int(value) for rows in self.reader.read(part) for value in rows["value"].to_pylist()]
            self.at = end
        return sorted(values)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_error: object) -> None:
        self.reader.stop()


def produce(bootstrap: str, topic: str, values: dict[int, list[int]]) -> None:
    """Send values to partitions, each a millisecond after the one before it."""
    with Producer(bootstrap) as producer:
        for partition, numbers in values.items():
            times = [START_MS + each for each in range(len(numbers))]
            producer.send_many(topic, [b"%d" % n for n in numbers], partition=partition, timestamps_ms=times)


@pytest.mark.parametrize(
    ("selection", "start", "fail_on_data_loss"),
    [*product(("assign", "subscribe", "subscribePattern"), STARTS, ("true", "false"))],
)
def test_a_stream_starts_where_it_is_told_goes_on_there_and_reads_partitions_that_are_added(
    bootstrap: str, selection: str, start: str, fail_on_data_loss: str
) -> None:
    topic = next(TOPICS)
    starting, expected = STARTS[start]
    chosen = {"assign": json.dumps({topic: [*range(PARTITIONS)]}), "subscribePattern": f"{topic}|no-such-.*"}
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "failOnDataLoss": fail_on_data_loss,
        selection: chosen.get(selection, topic),
        **{name: json.dumps({topic: at}) if isinstance(at, dict) else str(at) for name, at in starting.items()},
    }
    sent = {partition: [partition * 10 + number for number in range(3)] for partition in range(PARTITIONS)}
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, PARTITIONS, config={"retention.ms": "-1"})
        produce(bootstrap, topic, sent)
        with Run(options) as run:
            assert run.next_values() == [
                number for partition, kept in enumerate(expected) for number in sent[partition][3 - kept :]
            ]
        produce(bootstrap, topic, {0: [100], 4: [104]})
        with Run(options, run.at) as again:
            assert again.next_values() == [100, 104]
        admin.add_partitions(topic, PARTITIONS + 1)
        produce(bootstrap, topic, {0: [200], PARTITIONS: [205]})
        with Run(options, again.at) as last:
            assert last.next_values() == ([200] if selection == "assign" else [200, 205])
