"""The reader of a stretch of one partition, over a broker that is a function."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from barnabas.client import range_reader
from barnabas.client.range_reader import OFFSET_BYTES_GUESS, RangeReader, RangeSource
from barnabas.errors import ApiError, ClosedError, CorruptBatchError, ErrorCode, TimedOutError
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.records import BatchBuilder, stamp
from tests.simulation.loop import SimulatedLoop
from tests.simulation.world import HostClock

WAIT_S = 60


class FakeBroker:
    """One broker, and the connection to it; `answers` are error codes or records, one for each fetch."""

    def __init__(self, *answers):
        self.is_open = True
        self.answers = list(answers)
        self.sizes = []
        """What the fetches were ready to take, in bytes."""
        self.asked = threading.Event()
        """Set when a fetch has come that is not answered."""

    async def dial(self, host, port):
        return self

    def version_for(self, request):
        return 9

    async def send(self, request, *, version=None, timeout_s=30.0):
        if not isinstance(request, FetchRequest):
            part = MetadataResponsePartition(
                error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            topics = [MetadataResponseTopic(error_code=0, name="t", partitions=[part])]
            return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="a", port=1)], topics=topics)
        if not self.answers:
            self.asked.set()
            await asyncio.sleep(3600)
        self.sizes.append(request.max_bytes)
        answer = self.answers.pop(0)
        code, records = (answer, None) if isinstance(answer, ErrorCode) else (0, answer)
        return answer_of(code, records)

    def close(self):
        self.is_open = False


def answer_of(code, records, high_watermark=9):
    part = PartitionData(partition_index=0, error_code=code, high_watermark=high_watermark, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])


class EndedBroker(FakeBroker):
    """When it has given its answers, it has waited and has nothing, each time: its log ends before the range does, or
    else it is held to a rate."""

    fetches = 0

    def __init__(self, *answers, end_offset=1):
        super().__init__(*answers)
        self.end_offset = end_offset

    async def send(self, request, *, version=None, timeout_s=30.0):
        if isinstance(request, FetchRequest) and not self.answers:
            self.fetches += 1
            await asyncio.sleep(request.max_wait_ms / 1000)
            return answer_of(0, b"", high_watermark=self.end_offset)
        return await super().send(request, version=version, timeout_s=timeout_s)


class VirtualThread:
    """The loop's thread, in virtual time: whoever waits runs the loop."""

    def __init__(self, loop):
        self._loop = loop

    def end_with(self, *_client):
        pass

    def call_soon(self, function):
        function()

    def start(self, coroutine):
        return self._loop.create_task(coroutine)

    def wait(self, task):
        return self._loop.run_until_complete(task)

    def begin_close(self):
        return True

    def stop(self, finish):
        self._loop.run_until_complete(finish())


def batch(offset, count=1, size=1):
    builder = BatchBuilder()
    builder.append_many(1, [b"v" * size] * count)
    data = builder.build()
    stamp(data, 0, offset, 0)
    return bytes(data)


@pytest.fixture
def reading(monkeypatch):
    """Return a function that makes a reader of offsets 0 to 2 of what a broker answers."""
    made = []

    def make(broker):
        monkeypatch.setattr(range_reader, "dial_with", lambda config: broker.dial)
        made.append(RangeReader("a:1", "t", 0, 0, 2))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def test_the_batches_of_the_range_come_and_then_the_end(reading):
    reader = reading(FakeBroker(batch(0), batch(1)))
    assert [bytes(data) for data in reader] == [batch(0), batch(1)]
    reader.close()
    assert list(reader) == []


def test_a_reader_asks_for_little_more_than_is_left_of_its_range(monkeypatch):
    broker = FakeBroker(batch(0, 1_000, 1_000), batch(1_000, 1_000, 1_000), batch(2_000, 1_000, 1_000))
    monkeypatch.setattr(range_reader, "dial_with", lambda config: broker.dial)
    with RangeReader("a:1", "t", 0, 0, 3_000) as reader:
        assert len(list(reader)) == 3
    guess, *known = broker.sizes
    assert guess == 3_000 * OFFSET_BYTES_GUESS * 1.25
    left = [2_000_000, 1_000_000]
    assert all(size <= asked <= 1.4 * size for size, asked in zip(left, known, strict=True)), broker.sizes


def test_a_long_range_is_read_in_fetches_of_the_size_that_was_asked_for(monkeypatch):
    broker = FakeBroker(batch(0))
    monkeypatch.setattr(range_reader, "dial_with", lambda config: broker.dial)
    with RangeReader("a:1", "t", 0, 0, 1_000_000, fetch_max_bytes=3_000_000) as reader:
        next(reader)
    assert broker.sizes[0] == 3_000_000


def test_readers_one_after_the_other_share_the_connections_of_a_source(monkeypatch):
    broker, dialed = FakeBroker(batch(0), batch(1), batch(0), batch(1)), []

    async def dial(host, port):
        dialed.append(host)
        return broker

    monkeypatch.setattr(range_reader, "dial_with", lambda config: dial)
    source = RangeSource("a:1")
    with RangeReader(source, "t", 0, 0, 2) as first:
        assert len(list(first)) == 2
    in_the_middle = len(dialed)
    with RangeReader(source, "t", 0, 0, 2) as second:
        assert len(list(second)) == 2
    assert len(dialed) == in_the_middle
    left_early = RangeReader(source, "t", 0, 0, 2)
    assert broker.asked.wait(WAIT_S)
    left_early.close()
    assert broker.is_open
    source.close()
    assert not broker.is_open


def test_who_waits_for_a_reader_that_another_thread_closes_is_told_so(reading):
    broker, errors = FakeBroker(), []
    reader = reading(broker)

    def read():
        try:
            next(reader)
        except BaseException as error:  # noqa: BLE001 - what it was is what the test asks
            errors.append(error)

    waiting = threading.Thread(target=read)
    waiting.start()
    assert broker.asked.wait(WAIT_S)
    reader.close()
    waiting.join(WAIT_S)
    assert [type(error) for error in errors] == [ClosedError]


def test_a_reader_that_was_closed_before_the_end_of_its_range_does_not_pretend_to_have_reached_it(reading):
    reader = reading(FakeBroker(batch(0)))
    next(reader)
    reader.close()
    for _ in range(2):
        with pytest.raises(ClosedError, match="closed"):
            next(reader)


def test_after_an_error_the_reader_tries_again_and_each_error_is_a_fresh_one(reading):
    refused = ErrorCode.OFFSET_OUT_OF_RANGE
    reader = reading(FakeBroker(refused, refused, batch(0), batch(1)))
    errors = []
    for _ in range(2):
        with pytest.raises(ApiError, match="offset 0") as caught:
            next(reader)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert [bytes(data) for data in reader] == [batch(0), batch(1)]


def test_damage_does_not_look_like_the_end(reading):
    reader = reading(FakeBroker(b"damage", b"damage", batch(0), batch(1)))
    for _ in range(2):
        with pytest.raises(CorruptBatchError, match="no whole batch"):
            next(reader)
    assert len(list(reader)) == 2


@pytest.mark.parametrize(
    "broker",
    [EndedBroker(batch(0)), EndedBroker(batch(0), end_offset=2), FakeBroker(batch(0))],
    ids=["ended", "slow", "silent"],
)
def test_offsets_that_never_come_are_waited_for_as_long_as_is_set(monkeypatch, broker):
    loop = SimulatedLoop()
    monkeypatch.setattr(range_reader, "LoopThread", lambda _name: VirtualThread(loop))
    monkeypatch.setattr(range_reader, "SYSTEM_CLOCK", HostClock(loop, rate=1.0, ahead_ms=0))
    monkeypatch.setattr(range_reader, "dial_with", lambda config: broker.dial)
    with RangeReader("a:1", "t", 0, 0, 2, default_api_timeout_ms=20_000) as reader:
        assert bytes(next(reader)) == batch(0)
        for tries in (1, 2):
            with pytest.raises(TimedOutError, match=r"cannot read t-0 at offset 1.* 20 s") as caught:
                next(reader)
            assert loop.time() == pytest.approx(20 * tries, abs=1)
            is_ended = isinstance(broker, EndedBroker) and broker.end_offset < 2
            assert ("its log ends at offset 1, before the end of the range, 2" in str(caught.value)) is is_ended
            assert ("its log ends" in str(caught.value)) is is_ended
        if isinstance(broker, EndedBroker):
            assert 78 <= broker.fetches <= 82, "each waits for half a second"
    loop.close()


def test_a_forked_child_does_not_wait_for_its_copy(reading):
    broker = FakeBroker()
    reader = reading(broker)
    assert broker.asked.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(reader)
        except ClosedError as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class LyingBroker(FakeBroker):
    """It answers at once: with nothing, or with records of what nobody has asked for."""

    fetches = 0

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    async def send(self, request, *, version=None, timeout_s=30.0):
        if not isinstance(request, FetchRequest):
            return await super().send(request)
        self.fetches += 1
        await asyncio.sleep(0.001)
        return self.answer


def of_another(topic, partition):
    part = PartitionData(partition_index=partition, error_code=0, high_watermark=9, records=batch(0))
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[part])])


@pytest.mark.parametrize(
    "answer", [answer_of(0, b""), of_another("t", 1), of_another("other", 0), FetchResponse(responses=[])]
)
def test_a_broker_that_answers_at_once_and_with_nothing_is_asked_rarely(monkeypatch, answer):
    loop, broker = SimulatedLoop(), LyingBroker(answer)
    monkeypatch.setattr(range_reader, "LoopThread", lambda _name: VirtualThread(loop))
    monkeypatch.setattr(range_reader, "SYSTEM_CLOCK", HostClock(loop, rate=1.0, ahead_ms=0))
    monkeypatch.setattr(range_reader, "dial_with", lambda config: broker.dial)
    with RangeReader("a:1", "t", 0, 0, 2, default_api_timeout_ms=20_000) as reader:
        with pytest.raises((TimedOutError, ApiError)):
            next(reader)
        assert broker.fetches < 60, "the pauses grow"
    loop.close()
