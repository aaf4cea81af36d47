"""Produce requests that came together: appended together, judged and answered one by one, in their order."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.produce import ACKNOWLEDGED_MAX, REQUESTS_MAX
from barnabas.broker.handlers.produce import produce as produce_api
from barnabas.broker.pipeline.scheduler import ConnectionRequests
from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.model import NO_OFFSET
from barnabas.net.server_connection import Answer
from barnabas.protocol.codec import decode_response, read_correlation_id, request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import BatchBuilder
from barnabas.storage import Log
from tests.support.fake_link import FakeLink
from tests.support.replica_listeners import RecordedReads

VERSION = 9
DAMAGED = b"\xff" * 80


def batch(*values: bytes, **producer: int) -> bytes:
    builder = BatchBuilder()
    builder.append_many(1_000, list(values) or [b"value"])
    return bytes(builder.build(**producer))


def produce(*pieces: tuple[str, int, bytes | None], acks: int = 1, transactional_id: str | None = None) -> Any:
    """A request with one topic entry for each piece: topic, partition, batches."""
    topics = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])
        for topic, index, records in pieces
    ]
    return ProduceRequest(acks=acks, timeout_ms=10_000, transactional_id=transactional_id, topic_data=topics)


class Bench:
    """A broker with the topic `clicks` of two partitions, and frames that wait for it."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(BrokerConfig(port=0, data=str(folder)))
        self.frames: list[bytearray] = []
        self.correlation_id = 0
        self.calls = 0
        self._requests: ConnectionRequests | None = None

    @property
    def requests(self) -> ConnectionRequests:
        if self._requests is None:
            self._requests = self.broker.requests.new_handler(FakeLink())
        return self._requests

    def put(self, request: Any, version: int = VERSION) -> None:
        frame = b"".join(request_frame(request, version, self.correlation_id, "me"))  # type: ignore[arg-type]
        self.frames.append(bytearray(frame)[4:])
        self.correlation_id += 1

    async def carry_out(self) -> list[bytes]:
        """Carry out all that waits, as a connection does; return the frames of the answers."""
        answer: Answer = []
        while self.frames:
            self.calls += 1
            reply = self.requests.carry_out(self.frames)
            del self.frames[: reply.frame_count]
            answer += reply.answer
            if reply.later is not None:
                answer += await reply.later
        return _frames(b"".join(answer))  # type: ignore[arg-type]

    async def produced(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Carry out what waits; return, for each answer, the correlation id and the error and offset of each piece."""
        found = []
        for frame in await self.carry_out():
            response = decode_response(ProduceResponse, VERSION, frame)
            results = [result for topic in response.responses for result in topic.partition_responses]
            found.append((read_correlation_id(frame), [(each.error_code, each.base_offset) for each in results]))
        return found

    def end(self, number: int = 0, topic: str = "clicks") -> int:
        return self.broker.topics.replicas.leader(topic, number).log.log_end_offset


def _frames(data: bytes) -> list[bytes]:
    frames = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    async def with_broker(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        bench = Bench(tmp_path / "data")
        await bench.broker.start()
        try:
            await bench.broker.topic_admin.create("clicks", 2, {})
            async with asyncio.timeout(60):
                await scenario(bench)
        finally:
            await bench.broker.stop()

    return lambda scenario: asyncio.run(with_broker(scenario))


def test_each_request_gets_its_own_answer_in_order(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        for count in range(1, 5):
            bench.put(produce(("clicks", 0, batch(*[b"v"] * count))))
        assert await bench.produced() == [(0, [(0, 0)]), (1, [(0, 1)]), (2, [(0, 3)]), (3, [(0, 6)])]
        assert bench.calls == 1

    run(scenario)


def test_requests_that_name_topics_by_id_are_carried_out_together(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        topic = bench.broker.topics.get("clicks")
        assert topic
        for topic_id in (topic.id, topic.id, b"\1" * 16, topic.id):
            request = produce(("", 0, batch(b"v")))
            request.topic_data[0].topic_id = topic_id
            bench.put(request, 13)
        answers = [decode_response(ProduceResponse, 13, frame) for frame in await bench.carry_out()]
        found = [(a.responses[0].topic_id, a.responses[0].partition_responses[0]) for a in answers]
        assert [(topic_id, each.error_code, each.base_offset) for topic_id, each in found] == [
            (topic.id, 0, 0),
            (topic.id, 0, 1),
            (b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID, -1),
            (topic.id, 0, 2),
        ]
        assert bench.calls == 1

    run(scenario)


def test_a_bad_batch_fails_its_own_request_only(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        for records in (batch(), DAMAGED, batch(), None, b"", batch()):
            bench.put(produce(("clicks", 0, records)))
        corrupt, invalid = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
        expected = [(0, 0), (corrupt, -1), (0, 1), (invalid, -1), (invalid, -1), (0, 2)]
        assert await bench.produced() == [(number, [result]) for number, result in enumerate(expected)]

    run(scenario)


def test_several_topics_and_partitions_each_keep_their_order(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("views", 1, {})
        bench.put(produce(("clicks", 0, batch()), ("clicks", 1, batch())))
        bench.put(produce(("clicks", 1, batch())))
        bench.put(produce(("views", 0, batch()), ("clicks", 0, batch()), ("clicks", 0, DAMAGED)))
        bench.put(produce(("clicks", 1, batch())))
        bench.put(produce(("nowhere", 0, batch()), ("clicks", 0, batch())))
        bench.put(produce(("clicks", 1, None), ("clicks", 0, batch())))
        bench.put(produce())
        corrupt, unknown, invalid = 2, 3, 87
        assert await bench.produced() == [
            (0, [(0, 0), (0, 0)]),
            (1, [(0, 1)]),
            (2, [(0, 0), (0, 1), (corrupt, NO_OFFSET)]),
            (3, [(0, 2)]),
            (4, [(unknown, NO_OFFSET), (0, 2)]),
            (5, [(invalid, NO_OFFSET), (0, 3)]),
            (6, []),
        ]
        assert bench.calls == 1

    run(scenario)


def test_repeats_in_turn_to_two_partitions_keep_their_order(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(20):
            sequence = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number // 2}
            bench.put(produce(("clicks", number % 2, batch(**sequence))))
        assert await bench.produced() == [(number, [(0, number // 2)]) for number in range(20)]

    run(scenario)


def test_a_request_to_two_partitions_comes_between_its_neighbours(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        def sequence(number: int) -> bytes:
            return batch(producer_id=5, producer_epoch=0, base_sequence=number)

        for number in range(9):
            other = [("clicks", 1, batch())] if number % 3 == 1 else []
            bench.put(produce(("clicks", 0, sequence(number)), *other))
        assert [results[0] for _, results in await bench.produced()] == [(0, number) for number in range(9)]
        assert bench.end(1) == 3

    run(scenario)


@pytest.mark.parametrize("acks", [[1, 0, -1], [0, 1, 0], [1, -1, 1], [2, 1, 0]])
def test_different_acks_in_a_row(run: Run, acks: list[int]) -> None:
    async def scenario(bench: Bench) -> None:
        for each in acks:
            bench.put(produce(("clicks", 0, batch()), acks=each))
            bench.put(produce(("clicks", 0, batch()), acks=each))
        answers = await bench.produced()
        assert [number for number, _ in answers] == [number for number in range(6) if acks[number // 2] != 0]
        errors = {number: results[0][0] for number, results in answers}
        assert all(code == (21 if acks[number // 2] == 2 else 0) for number, code in errors.items())
        assert bench.end() == 2 * sum(each != 2 for each in acks)
        assert bench.calls == 3

    run(scenario)


def test_acks_0_that_fails_ends_the_connection_and_spares_its_neighbours(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.put(produce(("clicks", 0, batch()), acks=1))
        for records in (batch(), DAMAGED, batch()):
            bench.put(produce(("clicks", 0, records), acks=0))
        first = bench.requests.carry_out(bench.frames)
        assert first.frame_count == 1
        assert first.answer
        del bench.frames[0]
        with pytest.raises(ApiError, match="clicks-0, sent with acks=0"):
            bench.requests.carry_out(bench.frames)
        assert bench.end() == 3

    run(scenario)


def test_transactions_are_refused_between_others(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.put(produce(("clicks", 0, batch())))
        bench.put(produce(("clicks", 0, batch()), transactional_id="t"))
        bench.put(produce(("clicks", 0, batch())))
        refused = ErrorCode.INVALID_TXN_STATE
        assert await bench.produced() == [(0, [(0, 0)]), (1, [(refused, -1)]), (2, [(0, 1)])]

    run(scenario)


def test_another_api_and_a_damaged_frame_end_a_run(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        bench.put(produce(("clicks", 0, batch())))
        bench.put(ApiVersionsRequest(), 3)
        bench.put(produce(("clicks", 0, batch())), 8)
        bench.put(produce(("clicks", 0, batch())))
        bench.put(produce(("clicks", 0, batch())))
        bench.put(produce(("clicks", 0, batch())))
        bench.frames[4] = bench.frames[4][:30]
        counts = []
        for _ in range(4):
            reply = bench.requests.carry_out(bench.frames)
            counts.append(reply.frame_count)
            del bench.frames[: reply.frame_count]
        assert counts == [1, 1, 1, 1]
        with pytest.raises(MalformedMessageError):
            bench.requests.carry_out(bench.frames)
        assert bench.end() == 3

    run(scenario)


def test_a_run_has_an_end(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(REQUESTS_MAX + 10):
            bench.put(produce(("clicks", 0, batch()), acks=0))
        assert await bench.produced() == []
        assert bench.calls == 2
        bench.calls = 0
        for _ in range(8):
            bench.put(produce(("clicks", 0, batch(b"v" * 300_000)), acks=0))
        assert await bench.produced() == []
        assert bench.calls >= 3  # more where a slow machine takes a large one in slices
        assert bench.end() == REQUESTS_MAX + 18

    run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_long_run_that_is_acknowledged_is_answered_in_parts(run: Run, acks: int) -> None:
    async def scenario(bench: Bench) -> None:
        count = ACKNOWLEDGED_MAX * 2
        for number in range(count):
            bench.put(produce(("clicks", number % 2, batch()), acks=acks))
        assert await bench.produced() == [(number, [(0, number // 2)]) for number in range(count)]
        assert bench.calls == 2

    run(scenario)


@pytest.mark.parametrize("version", range(3, 14))
def test_packed_answers_and_refusals_are_those_of_requests_that_come_alone(run: Run, version: int) -> None:
    async def scenario(bench: Bench) -> None:
        topic = bench.broker.topics.get("clicks")
        assert topic
        requests = []
        for records in (batch(), DAMAGED, batch(), None, b"", batch()):
            requests += [
                produce(("clicks", 0, records)),
                produce(("clicks", 1, records)),
                produce(("none", 0, records)),
            ]
        for request in requests:
            request.topic_data[0].topic_id = topic.id if request.topic_data[0].name == "clicks" else b"\1" * 16
            bench.put(request, version)
        together = await bench.carry_out()
        assert bench.calls == 1
        ends = [bench.end(0), bench.end(1)]
        for correlation_id, request in enumerate(requests):
            bench.correlation_id = correlation_id
            bench.put(request, version)
            (alone,) = await bench.carry_out()
            first, second = (
                decode_response(ProduceResponse, version, frame) for frame in (together[correlation_id], alone)
            )
            result = second.responses[0].partition_responses[0]
            if not result.error_code:
                result.base_offset -= ends[result.index]
            assert first == second
            assert read_correlation_id(together[correlation_id]) == correlation_id

    run(scenario)


def test_requests_are_recognised_from_run_to_run_and_their_frames_are_not_kept(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        requests = bench.broker.requests.new_handler(FakeLink())
        for round_number in range(3):
            bench.put(produce(("clicks", 0, batch(b"v" * 1000))))
            frame = bench.frames.pop()
            if round_number:
                known = requests.state.templates.batches(produce_api, VERSION, "me").recognise(frame)
                assert known is not None
                assert known[0].topic_data[0].partition_data[0].records == b""
            requests.carry_out([frame])
            assert bench.end() == round_number + 1
        # Another topic of the same name is another one, although the same requests go there.
        await bench.broker.topic_admin.delete("clicks")
        bench.put(produce(("clicks", 0, batch())))
        (refused,) = _frames(b"".join(requests.carry_out(bench.frames).answer))  # type: ignore[arg-type]
        result = decode_response(ProduceResponse, VERSION, refused).responses[0].partition_responses[0]
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_only_requests_that_complete_flush_messages_and_those_behind_wait(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("flushed", 1, {"flush.messages": "3"})
        for _ in range(5):
            bench.put(produce(("flushed", 0, batch())))
        reply = bench.requests.carry_out(bench.frames)
        assert [read_correlation_id(frame) for frame in _frames(b"".join(reply.answer))] == [0, 1]  # type: ignore[arg-type]
        log = bench.broker.topics.replicas.leader("flushed", 0).log
        assert (log.recovery_point, log.log_end_offset) == (0, 5)
        assert reply.later is not None
        later = await reply.later
        assert [read_correlation_id(frame) for frame in _frames(b"".join(later))] == [2, 3, 4]  # type: ignore[arg-type]
        assert log.recovery_point == 5

    run(scenario)


def test_waiting_for_several_flushes_takes_the_time_of_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = []
    flush = Log.flush

    def flush_and_count(log: Log) -> None:
        flushes.append(log)
        flush(log)

    monkeypatch.setattr(Log, "flush", flush_and_count)

    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("slow", 1, {"flush.ms": "1000000000"})
        for _ in range(10):
            bench.put(produce(("slow", 0, batch()), acks=-1))
        assert [results for _, results in await bench.produced()] == [[(0, number)] for number in range(10)]
        assert len(flushes) <= 2

    run(scenario)


def test_a_reader_that_waits_is_told_once(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        reads = RecordedReads()
        bench.broker.topics.replicas.leader("clicks", 0).watch(reads)
        bench.put(produce(("clicks", 0, batch())))
        bench.put(produce(("clicks", 0, DAMAGED)))
        bench.put(produce(("clicks", 0, batch())))
        await bench.produced()
        assert reads.events == [2 * len(batch())]

    run(scenario)


def test_batches_are_recompressed_one_request_at_a_time(run: Run) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.broker.topic_admin.create("packed", 1, {"compression.type": "gzip"})
        for records in (batch(b"a" * 1_000), DAMAGED, batch(b"b" * 1_000)):
            bench.put(produce(("packed", 0, records)))
        corrupt = ErrorCode.CORRUPT_MESSAGE
        assert await bench.produced() == [(0, [(0, 0)]), (1, [(corrupt, -1)]), (2, [(0, 1)])]
        assert bench.broker.topics.replicas.leader("packed", 0).log.size_bytes < 500

    run(scenario)
