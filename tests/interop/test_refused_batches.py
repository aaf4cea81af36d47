"""librdkafka's producer, while a broker refuses batches now and then: each value is stored once, and in order.

Where the leader of a partition changes, or replicas come back into the ISR, the first of several batches is refused and
the ones behind it are not; and what is in the log is not always acknowledged. Here that happens all the time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.replica_storage import Waiter, refused
from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import Acks
from barnabas.records import read_records
from barnabas.records.header import Buffer
from barnabas.storage import AppendInfo, Log
from barnabas.storage.log_appender import Outcome

TOPIC = "clicks"
VALUES = 3_000
"""Before batches behind a refused one were refused as well, a dozen of so many were stored twice."""
SHARE = 0.1
"""So many batches are refused, or not acknowledged."""
WAITS_S = 0.005
"""For the acknowledgement, so that more batches come meanwhile."""
NOT_NOW = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not now")
PATIENT_S = 240.0


def make_fickle(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Let partition 0 refuse the first ones of what came together, and 1 store without acknowledging; return how often
    that happened, from now on."""
    chance, counts = random.Random(1), Counter[str]()
    store = LeaderReplica.append_all

    def append_all(
        partition: LeaderReplica, requests: Sequence[Buffer]
    ) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        if partition.topic_partition != (TOPIC, 0) or chance.random() >= SHARE:
            return store(partition, requests)
        count = chance.randint(1, len(requests))
        counts["refused"] += count
        rest = store(partition, requests[count:])
        assert isinstance(rest, list)
        return [NOT_NOW] * count + rest

    def when_acknowledged(partition: LeaderReplica, _info: AppendInfo, _acks: Acks) -> Waiter | None:
        if partition.topic_partition == (TOPIC, 1) and chance.random() < SHARE:
            counts["not acknowledged"] += 1
            return refused(NOT_NOW)
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        loop.call_later(WAITS_S, lambda: waiter.done() or waiter.set_result(None))
        return waiter

    patch.setattr(LeaderReplica, "append_all", append_all)
    patch.setattr(LeaderReplica, "when_acknowledged", when_acknowledged)
    patch.setattr(LeaderReplica, "acknowledges_at_once", lambda *_: False)
    return counts


def send_all(bootstrap: str) -> list[str]:
    """Send numbers to two partitions in turn, each in a batch of its own; return the errors."""
    errors: list[str] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 50,
        }
    )
    for number in range(VALUES):
        producer.produce(
            TOPIC,
            str(number).encode(),
            partition=number % 2,
            on_delivery=lambda error, _: error and errors.append(error.str()),
        )
        producer.poll(0)
    left = producer.flush(PATIENT_S)
    return [*errors, *["not sent"] * left]


def stored(log: Log) -> list[int]:
    """Return the numbers in a log."""
    found: list[int] = []
    offset = 0
    while region := log.read(offset, 1 << 20, log.log_end_offset).batches:
        records = read_records(log.bytes_of(region), TOPIC, 0)
        found += [int(each.value or b"") for each in records]
        offset = records[-1].offset + 1
    return found


@pytest.mark.timeout(2 * PATIENT_S)
def test_each_value_is_stored_once_where_batches_are_refused_and_those_behind_them_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        broker = Broker(BrokerConfig(port=0, data=str(tmp_path)))
        await broker.start()
        try:
            await broker.topic_admin.create(TOPIC, 2, {})
            counts = make_fickle(monkeypatch)
            assert await asyncio.to_thread(send_all, f"127.0.0.1:{broker.port}") == []
            assert counts["refused"]
            assert counts["not acknowledged"]
            for number in (0, 1):
                assert stored(broker.topics.replicas.leader(TOPIC, number).log) == list(range(number, VALUES, 2))
        finally:
            monkeypatch.undo()
            await broker.stop()

    asyncio.run(scenario())
