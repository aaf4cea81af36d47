"""A batch that was sent behind one that was refused is refused as that one was, whatever is the case by now."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.refused_batches import PLACES_MAX, RefusedBatches
from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import BatchBuilder
from barnabas.records.header import SEQUENCE_MAX, Buffer
from barnabas.storage.log_appender import Outcome
from tests.support.in_process_broker import Caller, run_with_broker

PRODUCER = 7
REFUSED = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not yet")
OUT_OF_ORDER = ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "what was before it?")
VERSION = 9
RECORDS = 2
"""Of each batch."""


def batch(number: int, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    """The batch of this number that an idempotent producer sends."""
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"] * RECORDS)
    sequence = number * RECORDS
    return bytes(builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def told(errors: Mapping[int, BarnabasError]) -> dict[int, str]:
    """What is told of batches that were refused."""
    return {number: str(error) for number, error in errors.items()}


def _frame(number: int, epoch: int) -> bytes:
    data = PartitionProduceData(index=0, records=batch(number, epoch))
    topic = TopicProduceData(name="clicks", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    return b"".join(request_frame(request, VERSION, number, "me"))[4:]  # type: ignore[arg-type]


class Bench:
    """A broker, and a producer that is connected with it."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def partition(self) -> LeaderReplica:
        return self._caller.broker.topics.replicas.leader("clicks", 0)

    @property
    def end(self) -> int:
        """How many batches are stored."""
        return self.partition.log.log_end_offset // RECORDS

    async def send(self, number: int, epoch: int = 0) -> ErrorCode:
        (code,) = await self.send_at_once(number, epoch=epoch)
        return code

    async def send_at_once(self, *numbers: int, epoch: int = 0) -> list[ErrorCode]:
        """Let batches come in a row, before the first of them is answered; return the answers."""
        frames = [bytearray(_frame(number, epoch)) for number in numbers]
        reply = self._caller.requests.carry_out(frames)
        assert reply.frame_count == len(numbers)
        answer = b"".join(reply.answer + (await reply.later if reply.later is not None else []))  # type: ignore[arg-type]
        codes = []
        while answer:
            size = int.from_bytes(answer[:4])
            response = decode_response(ProduceResponse, VERSION, answer[4 : 4 + size])
            codes.append(ErrorCode(response.responses[0].partition_responses[0].error_code))
            answer = answer[4 + size :]
        return codes

    def reconnect(self) -> None:
        self._caller.reconnect()


Scenario = Callable[[Bench], Coroutine[Any, Any, None]]
OK, GONE, WRONG = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    return lambda scenario: run_with_broker(tmp_path, lambda caller: scenario(Bench(caller)))


def test_what_was_sent_behind_a_refused_batch_is_refused_too(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.send(0) is OK
        bench.partition.fence()
        assert await bench.send(1) is GONE
        bench.partition.unfence()
        assert [await bench.send(2), await bench.send(3)] == [GONE, GONE], "the log would say that it is out of order"
        assert bench.end == 1
        assert [await bench.send(number) for number in (1, 2, 3, 4)] == [OK] * 4
        assert bench.end == 5

    run(scenario)


def test_a_producer_that_the_log_does_not_know_cannot_leave_out_its_first_batch(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.partition.fence()
        assert await bench.send(0) is GONE
        bench.partition.unfence()
        assert await bench.send(1) is GONE
        assert bench.end == 0, "it would be taken, and the first one never again"
        assert [await bench.send(0), await bench.send(1)] == [OK, OK]

    run(scenario)


def test_a_batch_that_comes_again_without_the_one_before_it_is_left_to_the_log(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.send(0) is OK
        bench.partition.fence()
        assert await bench.send(1) is GONE
        bench.partition.unfence()
        assert [await bench.send(2), await bench.send(2)] == [GONE, WRONG]

    run(scenario)


def test_another_epoch_and_another_connection_are_left_to_the_log(run: Callable[[Scenario], None]) -> None:
    async def scenario(bench: Bench) -> None:
        assert await bench.send(0) is OK
        bench.partition.fence()
        assert await bench.send(1) is GONE
        bench.partition.unfence()
        assert await bench.send(0, epoch=1) is OK
        assert await bench.send(1, epoch=1) is OK
        bench.partition.fence()
        assert await bench.send(2, epoch=1) is GONE
        bench.partition.unfence()
        bench.reconnect()
        assert await bench.send(3, epoch=1) is WRONG

    run(scenario)


def test_what_was_stored_before_and_is_refused_when_it_comes_again_is_stored_once(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(bench: Bench) -> None:
        assert [await bench.send(number) for number in (0, 1)] == [OK, OK]
        bench.partition.fence()
        assert await bench.send(0) is GONE
        bench.partition.unfence()
        assert [await bench.send(number) for number in (1, 2)] == [GONE, GONE]
        assert [await bench.send(number) for number in (0, 1, 2)] == [OK] * 3
        assert bench.end == 3

    run(scenario)


def test_what_came_at_once_with_the_refused_batch_is_refused_as_that(
    run: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    append_all = LeaderReplica.append_all

    def refuse_first(self: LeaderReplica, requests: Sequence[Buffer]) -> list[Outcome]:
        rest = append_all(self, requests[1:])
        assert isinstance(rest, list)
        return [StorageError("no room"), *rest]

    async def scenario(bench: Bench) -> None:
        assert await bench.send(0) is OK
        with monkeypatch.context() as patch:
            patch.setattr(LeaderReplica, "append_all", refuse_first)
            assert await bench.send_at_once(1, 2) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert await bench.send_at_once(1, 2, 3) == [OK] * 3

    run(scenario)


def test_sequences_begin_again_behind_the_last_one() -> None:
    refused = RefusedBatches()
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"])
    last = bytes(builder.build(producer_id=PRODUCER, producer_epoch=0, base_sequence=SEQUENCE_MAX))
    assert refused.note(("clicks", 0), last, REFUSED) is REFUSED
    assert told(refused.refusals(("clicks", 0), [batch(0), batch(1), batch(3)])) == {0: str(REFUSED), 1: str(REFUSED)}


def test_only_what_may_pass_is_told_of_others() -> None:
    refused = RefusedBatches()
    for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_PRODUCER_EPOCH):
        refused.note(("clicks", 0), batch(0), ApiError(code, "for ever"))
        assert not refused.refusals(("clicks", 0), [batch(1)])
        assert refused.note(("clicks", 0), batch(1), OUT_OF_ORDER) is OUT_OF_ORDER


@pytest.mark.parametrize("records", [b"", b"\xff" * 80, bytes(80), batch(0, producer_id=-1)])
def test_what_has_no_sequence_is_not_remembered(records: bytes) -> None:
    refused = RefusedBatches()
    assert refused.note(("clicks", 0), records, REFUSED) is REFUSED
    assert not refused.refusals(("clicks", 0), [records, batch(1)])


def test_partitions_are_told_apart_and_not_too_many_are_remembered() -> None:
    refused = RefusedBatches()
    for number in range(PLACES_MAX + 1):
        refused.note(("clicks", number), batch(0), REFUSED)
    assert not refused.refusals(("clicks", 0), [batch(1)])
    assert told(refused.refusals(("clicks", 1), [batch(1)])) == {0: str(REFUSED)}
    assert told(refused.refusals(("clicks", PLACES_MAX), [batch(1)])) == {0: str(REFUSED)}


def test_nothing_is_kept_of_what_was_refused_but_its_number() -> None:
    refused = RefusedBatches()
    records = bytearray(batch(0))

    def refuse() -> None:
        held = memoryview(records)  # the traceback keeps this frame, and what it has
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not yet, {len(held)} bytes")

    try:
        refuse()
    except ApiError as error:
        refused.note(("clicks", 0), records, error)
    gc.collect()
    records.clear()  # raises BufferError while anybody looks into it
    (again,) = refused.refusals(("clicks", 0), [batch(1)]).values()
    assert error_code(again) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_message(again) == f"not yet, {len(batch(0))} bytes"


def test_names_that_no_topic_can_have_are_not_remembered() -> None:
    refused = RefusedBatches()
    refused.note(("x" * 250, 0), batch(0), REFUSED)
    assert refused.refusals(("x" * 250, 0), [batch(1)]) == {}
