"""What is produced to a compacted topic: records with keys, that a cleaner will understand."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.records import BATCH_HEADER_SIZE, BatchBuilder, Compression
from barnabas.records.header import write_crc
from tests.support.in_process_broker import Caller, run_with_broker


async def produced(caller: Caller, batch: bytes | bytearray | memoryview) -> PartitionProduceResponse:
    topic = caller.broker.topics.get("states")
    if topic is None:
        topic = await caller.broker.topic_admin.create("states", 1, {"cleanup.policy": "compact"})
    data = PartitionProduceData(index=0, records=batch)
    named = TopicProduceData(name="states", topic_id=topic.id, partition_data=[data])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=[named])
    answer = await caller.call(request)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


def batch_of(*keys: bytes | None, compression: Compression = Compression.NONE) -> bytearray:
    builder = BatchBuilder(compression)
    for key in keys:
        builder.append(1_000, key, b"value")
    return bytearray(builder.build())


@pytest.mark.parametrize("compression", Compression)
def test_records_without_keys_are_refused_and_it_is_said_which(tmp_path: Path, compression: Compression) -> None:
    async def scenario(caller: Caller) -> None:
        sound = await produced(caller, batch_of(b"a", b"b", compression=compression))
        assert (sound.error_code, sound.base_offset, sound.record_errors) == (ErrorCode.NONE, 0, [])
        refused = await produced(caller, batch_of(b"a", b"b", None, b"c", None, compression=compression))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert refused.error_message is not None
        assert (
            "record 2 of the batch: the record has no key, which a compacted topic (cleanup.policy=compact) requires"
            in refused.error_message
        )
        assert [error.batch_index for error in refused.record_errors] == [2, 4]
        for error in refused.record_errors:
            assert error.batch_index_error_message is not None
            assert "the record has no key" in error.batch_index_error_message
        assert (await produced(caller, batch_of(b"c", compression=compression))).base_offset == 2

    run_with_broker(tmp_path, scenario)


def test_the_records_told_of_in_one_answer_are_limited(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topic = await caller.broker.topic_admin.create("states", 4, {"cleanup.policy": "compact"})
        data = [PartitionProduceData(index=index, records=batch_of(*[None] * 600)) for index in range(4)]
        named = TopicProduceData(name="states", topic_id=topic.id, partition_data=data)
        answer = await caller.call(ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=[named]))
        told = [[error.batch_index for error in each.record_errors] for each in answer.responses[0].partition_responses]
        assert told == [list(range(250))] * 4

    run_with_broker(tmp_path, scenario)


def test_records_that_a_cleaner_would_not_understand_are_refused(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        batch = batch_of(b"key")
        batch[BATCH_HEADER_SIZE + 4] = 0x7E  # the length of the key goes beyond the record
        write_crc(batch, 0, len(batch))
        refused = await produced(caller, batch)
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert caller.broker.topics.replicas.leader("states", 0).log.log_end_offset == 0

    run_with_broker(tmp_path, scenario)


def test_a_batch_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        builder = BatchBuilder(Compression.ZSTD)
        builder.append(1, b"key", bytes(20 * 1024 * 1024))
        refused = await produced(caller, builder.build())
        assert refused.error_code == ErrorCode.INVALID_RECORD

    run_with_broker(tmp_path, scenario)


def test_other_topics_take_records_without_keys(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.topic_admin.create("states", 1, {})
        assert (await produced(caller, batch_of(None))).error_code == ErrorCode.NONE

    run_with_broker(tmp_path, scenario)
