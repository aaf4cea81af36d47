"""Produce, versions 0 to 13: append record batches.

Consecutive requests of a connection form a run. All batches of a run for one partition are appended with one write.
Each request is checked and answered as if it were processed alone.

Versions 0 to 2 are advertised because librdkafka stops compressing without them (KAFKA-18659). Their message formats
are not supported, so each partition gets UNSUPPORTED_VERSION. Transactional batches are rejected, because transactions
are not supported. Record errors (version 8) exist only for compacted topics, which reject records without keys. In
other topics, the broker does not decode records. A response contains at most 1,000 record errors for all partitions
together, but at least one for each rejected batch. The current leader (version 10) is not returned, so clients refresh
their metadata.

`barnabas.broker.leader_replica` describes when a batch is acknowledged.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.internal_topics import INTERNAL_TOPICS, check_not_internal
from barnabas.broker.pipeline.call import Call, LaterReply, Received, Reply, Run, serves
from barnabas.broker.refused_batches import RefusedBatches
from barnabas.broker.replica_storage import Waiter
from barnabas.errors import (
    ApiError,
    BarnabasError,
    ErrorCode,
    UnsupportedVersionError,
)
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, Acks
from barnabas.protocol.codec import response_template_encoder
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.shielded import completed
from barnabas.storage.log_appender import AppendInfo, InvalidRecordsError

if TYPE_CHECKING:
    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.broker.pipeline.call import ConnectionState
    from barnabas.broker.replica_manager import ReplicaManager
    from barnabas.broker.topics import Topics
    from barnabas.records.header import Buffer
    from barnabas.storage.log_appender import Outcome


PIECE_ENTRIES_MAX = 64
"""The maximum number of topics and partitions in a piece. A large request is divided into pieces."""

PIECE_BYTES_MAX = 1024 * 1024
"""The size in bytes at which a piece of a large request ends. The last partition in a piece may exceed this size."""


REQUESTS_MAX = 1024
"""The maximum number of requests in a run with acks=0."""

ACKNOWLEDGED_MAX = 50
"""The maximum number of requests in a run with acks=1 or acks=all.

More requests are divided into several runs. A producer with the maximum number of requests in flight can send again
after the first run.
"""


def entry_count(request: ProduceRequest) -> int:
    """Return the number of topics and partitions of a request."""
    count = len(request.topic_data)
    for topic in request.topic_data:
        count += len(topic.partition_data)
    return count


def must_be_in_pieces(request: ProduceRequest, size: int) -> bool:
    """Return whether a request of this size must be processed in pieces."""
    entries = entry_count(request)
    partitions = entries - len(request.topic_data)
    return entries > PIECE_ENTRIES_MAX or (size > PIECE_BYTES_MAX and partitions > 1)


def only_partition(request: ProduceRequest) -> PartitionProduceData | None:
    """Return the data of the only partition of a request, or None if the request has no or several partitions."""
    if len(request.topic_data) == 1 == len(request.topic_data[0].partition_data):
        return request.topic_data[0].partition_data[0]
    return None


class Piece(NamedTuple):
    """A part of a large request.

    `continues` is True if the piece begins with further partitions of the last topic in the previous piece.
    """

    request: ProduceRequest
    continues: bool


def pieces(request: ProduceRequest) -> Iterator[Piece]:
    """Yield the pieces of a request. Each piece contains some of the partitions, in order."""
    part: list[tuple[TopicProduceData, PartitionProduceData | None]] = []
    entries = size = 0
    continues = False
    for topic in request.topic_data:
        for number, data in enumerate(topic.partition_data or [None]):
            if entries >= PIECE_ENTRIES_MAX or size >= PIECE_BYTES_MAX:
                yield Piece(_request_for(part, request), continues)
                part, entries, size, continues = [], 0, 0, number > 0
            part.append((topic, data))
            entries += 1 if number else 2
            size += len(data.records) if data and data.records else 0
    yield Piece(_request_for(part, request), continues)


def _request_for(
    part: Sequence[tuple[TopicProduceData, PartitionProduceData | None]], request: ProduceRequest
) -> ProduceRequest:
    topics = []
    for _, same in groupby(part, key=lambda each: id(each[0])):
        (topic, first), *others = same
        data = [each for each in (first, *(other for _, other in others)) if each is not None]
        topics.append(replace(topic, partition_data=data))
    return replace(request, topic_data=topics)


def join(responses: Sequence[tuple[ProduceResponse, bool]]) -> ProduceResponse:
    """Join the responses to the pieces of a request into one response.

    :param responses: the responses, each with `Piece.continues`.
    """
    topics: list[TopicProduceResponse] = []
    for response, continues in responses:
        parts = response.responses
        if continues:
            topics[-1].partition_responses += parts[0].partition_responses
        topics += parts[1:] if continues else parts
    return replace(responses[0][0], responses=topics)


class ProduceRuns:
    """The rules for combining Produce requests into runs and for dividing them into pieces
    (`barnabas.broker.pipeline.call.RunRules`).

    The pieces of a request are appended in order, so the result is the same as for an undivided request.
    """

    entry_count = staticmethod(entry_count)
    only_partition = staticmethod(only_partition)
    must_be_in_pieces = staticmethod(must_be_in_pieces)
    pieces = staticmethod(pieces)
    join = staticmethod(join)

    def requests_max(self, first: ProduceRequest) -> int:
        """Return the maximum number of requests in a run."""
        return ACKNOWLEDGED_MAX if first.acks != Acks.NONE else REQUESTS_MAX

    def go_together(self, first: ProduceRequest, other: ProduceRequest) -> bool:
        """Return whether two requests may be in one run, because they have the same `acks`."""
        return first.acks == other.acks

    def wants_answer(self, request: ProduceRequest) -> bool:
        """Return whether a request expects a response."""
        return request.acks != Acks.NONE


Waiting = list[tuple[PartitionProduceResponse, Waiter]]
"""Partition results, each with the future that must complete before the partition is acknowledged."""

RECORD_ERRORS_MAX = 1_000
"""The maximum number of record errors in a response.

The number is limited because a small batch may contain millions of records.
"""

PACKERS_MAX = 4096
"""The maximum number of cached response templates. There is one per partition, and each has about 1 KiB."""

Response: TypeAlias = "ProduceResponse | bytes | Awaitable[ProduceResponse | bytes | None] | None"
"""The response to one request. A bytes object is a complete response frame."""

PackAnswer = Callable[[int, int, int, int], bytes]
"""A function that returns the response frame of an acknowledgement.

Its arguments are correlation id, base offset, log append time and log start offset.
"""


@functools.lru_cache(maxsize=PACKERS_MAX)
def packer(version: int, topic: str, topic_id: bytes, index: int) -> PackAnswer:
    """Return the response template for requests with only this partition."""

    def answer_with(number: int) -> ProduceResponse:
        result = PartitionProduceResponse(
            index=index,
            error_code=ErrorCode.NONE,
            base_offset=number,
            log_append_time_ms=number,
            log_start_offset=number,
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[result])]
        )

    return response_template_encoder(answer_with, version)


class Acknowledgement:
    """Awaits the acknowledgements of all partitions of a request, up to the timeout, and results in the response.

    The response has an error for each partition whose wait failed or timed out. The wait starts with the `await`.
    """

    __slots__ = ("_response", "_timeout_ms", "_waiting")

    def __init__(self, response: ProduceResponse, waiting: Waiting, timeout_ms: int) -> None:
        self._response = response
        self._waiting = waiting
        self._timeout_ms = timeout_ms

    def __await__(self) -> Generator[Any, None, ProduceResponse]:
        return self._wait().__await__()

    async def _wait(self) -> ProduceResponse:
        futures = [future for _, future in self._waiting]
        try:
            await asyncio.wait(futures, timeout=max(0, self._timeout_ms) / 1000)
        finally:
            for future in futures:
                future.cancel()
        for result, future in self._waiting:
            if future.cancelled():
                refuse(result, _timed_out(self._timeout_ms))
            elif error := future.exception():
                assert isinstance(error, BarnabasError)
                refuse(result, error)
        return self._response


class Settling:
    """Awaits the responses to some requests of a run. The wait starts with the `await`.

    :param responses: the responses, some of which may be awaitable, or a future of the responses.
    """

    __slots__ = ("_responses",)

    def __init__(self, responses: Sequence[Response] | asyncio.Future[Sequence[Response]]) -> None:
        self._responses = responses

    def __await__(self) -> Generator[Any, None, list[ProduceResponse | bytes | None]]:
        return self._settle().__await__()

    async def _settle(self) -> list[ProduceResponse | bytes | None]:
        responses = self._responses
        if isinstance(responses, asyncio.Future):
            responses = await completed(responses, is_shared=True)
        waiting = [each for each in responses if isinstance(each, Awaitable)]
        settled = iter([await waiting[0]] if len(waiting) == 1 else await asyncio.gather(*waiting))
        return [next(settled) if isinstance(each, Awaitable) else each for each in responses]


def refuse(result: PartitionProduceResponse, error: BarnabasError) -> None:
    """Put an error into a partition's result."""
    result.error_code, result.error_message = error_code(error), error_message(error)
    result.base_offset = result.log_start_offset = NO_OFFSET
    result.log_append_time_ms = NO_TIMESTAMP


def errors_of_records(error: InvalidRecordsError, request: ProduceRequest) -> list[BatchIndexAndErrorMessage]:
    """Return the record errors for a rejected batch, up to the limit."""
    count_max = max(1, RECORD_ERRORS_MAX // sum(len(topic.partition_data) for topic in request.topic_data))
    return [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=error.reason)
        for number in error.numbers[:count_max]
    ]


class Appended(NamedTuple):
    """A request with only one partition, whose batch was appended."""

    request: ProduceRequest
    correlation_id: int
    info: AppendInfo
    pack: PackAnswer

    def frame(self) -> bytes:
        """Return the response frame that acknowledges the batch."""
        info = self.info
        return self.pack(self.correlation_id, info.base_offset, info.log_append_time_ms, info.log_start_offset)

    def refusal(self, error: BarnabasError) -> ProduceResponse:
        """Return a response with this error instead of the acknowledgement."""
        topic = self.request.topic_data[0]
        result = PartitionProduceResponse(
            index=topic.partition_data[0].index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET
        )
        refuse(result, error)
        named = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])
        return ProduceResponse(responses=[named])


async def respond_together(
    appended: Sequence[Appended], waiters: Sequence[Waiter]
) -> Sequence[bytes | ProduceResponse]:
    """Wait for all waiters, and return the responses to the requests. If one wait fails, all requests get the error."""
    timeout_ms = appended[0].request.timeout_ms
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            for waiter in waiters:
                await waiter
    except TimeoutError:
        error: BarnabasError = _timed_out(timeout_ms)
    except BarnabasError as failure:
        error = failure
    else:
        return [each.frame() for each in appended]
    finally:
        for waiter in waiters:
            if not waiter.cancel() and not waiter.cancelled():
                waiter.exception()  # Mark the exception as retrieved, so that asyncio does not log it.
    return [each.refusal(error) for each in appended]


def _timed_out(timeout_ms: int) -> ApiError:
    message = f"not flushed and replicated within {timeout_ms} ms; this may still happen later"
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, message)


FIRST_VERSION_WITH_BATCHES = 3
FIRST_VERSION_WITH_TOPIC_IDS = 13

KEPT_BYTES_IN_RUN = 1_024
"""The estimated size in bytes of the response that a waiting request of a run keeps in memory."""


@serves(ProduceRequest, runs=ProduceRuns())
def produce(topics: Topics, replicas: ReplicaManager, run: Run, call: Call) -> Reply:
    """Append the batches of all requests of a run.

    :raises BarnabasError: an append with acks=0 failed. The connection is then closed, because there is no response
        that could contain the error.
    """
    appends = _append_all(topics, replicas, run, call)
    if any(append.is_waiting for append in appends.by_place.values()):
        responding = asyncio.get_running_loop().create_task(_respond_later(run, appends))
        return LaterReply(Settling(responding), KEPT_BYTES_IN_RUN * len(run), before=[responding], response=[])
    return _acknowledged_together(run, appends) or _reply(_respond_to_all(run, appends))


def _reply(responses: Sequence[Response]) -> Reply:
    """Return a reply that sends the responses before the first awaitable immediately, and the other responses later."""
    for number, response in enumerate(responses):
        if type(response) is not bytes and isinstance(response, Awaitable):
            rest = responses[number:]
            return LaterReply(Settling(rest), KEPT_BYTES_IN_RUN * len(rest), response=responses[:number])
    return Reply(responses)


class _Append:
    """The batches of a run for one partition, and the outcome of each batch, in the order of the requests."""

    __slots__ = (
        "_acks",
        "_connection",
        "_held_back",
        "_place",
        "_refusal",
        "_waiting",
        "outcomes",
        "pack",
        "partition",
        "records",
    )

    def __init__(
        self,
        topics: Topics,
        replicas: ReplicaManager,
        topic: str | bytes,
        number: int,
        acks: int,
        refusal: BarnabasError | None,
        connection: ConnectionState,
    ) -> None:
        self._connection = connection
        self._place = topic, number
        self._held_back: dict[int, BarnabasError] = {}
        self.records: list[Buffer] = []
        self.partition: LeaderReplica | None = None
        self.outcomes: deque[Outcome] = deque()
        self.pack: PackAnswer | None = None
        """The response template for requests with only this partition, or None if an acknowledgement may have to wait.
        """
        self._waiting: asyncio.Future[list[Outcome]] | None = None
        self._acks = acks
        self._refusal = refusal
        if refusal:
            return
        try:
            name = topic if isinstance(topic, str) else topics.name_of(topic)
            partition = replicas.leader(name, number)
            if name in INTERNAL_TOPICS:
                check_not_internal(name, "clients cannot write to it")
            if acks == Acks.ALL:
                partition.check_replicas()
            self.partition = partition
        except BarnabasError as error:
            self._refusal = error

    @property
    def is_waiting(self) -> bool:
        """True if the append is not complete."""
        return self._waiting is not None

    @property
    def can_be_packed(self) -> bool:
        """True if all batches were appended and the template can acknowledge them."""
        return self.pack is not None and all(isinstance(outcome, AppendInfo) for outcome in self.outcomes)

    def when_all_acknowledged(self) -> Waiter | None:
        """Return the future that must complete before the batches are acknowledged, or None."""
        assert self.partition
        last = max((each for each in self.outcomes if isinstance(each, AppendInfo)), key=_last_offset)
        return self.partition.when_acknowledged(last, self._acks)

    @property
    def usable_pack(self) -> PackAnswer | None:
        """`pack`, or None if acknowledgements must wait, for example because the topic has a flush policy now."""
        return self.pack if self.partition is not None and self.partition.acknowledges_at_once(self._acks) else None

    def start(self) -> None:
        if self.partition is None:
            assert self._refusal
            self.outcomes.extend([self._refusal] * len(self.records))
            return
        records = self.records
        if self._connection.refused_batches is not None:
            self._held_back = self._connection.refused_batches.refusals(self._place, records)
            if self._held_back:
                records = [each for number, each in enumerate(records) if number not in self._held_back]
        outcomes = self.partition.append_all(records) if records else []
        if isinstance(outcomes, asyncio.Future):
            self._waiting = outcomes
        else:
            self._take(outcomes)

    async def wait(self) -> None:
        """Wait until the append is complete."""
        if self._waiting is not None:
            self._take(await self._waiting)

    def next_outcome(self) -> Outcome:
        """Return the outcome of the next batch, in the order of the requests."""
        outcome = self.outcomes.popleft()
        if isinstance(outcome, BarnabasError):
            number = len(self.records) - len(self.outcomes) - 1
            if self._connection.refused_batches is None:
                self._connection.refused_batches = RefusedBatches()
            return self._connection.refused_batches.note(self._place, self.records[number], outcome)
        return outcome

    def _take(self, outcomes: Sequence[Outcome]) -> None:
        if self._held_back:
            judged = iter(outcomes)
            outcomes = [self._held_back.get(number) or next(judged) for number in range(len(self.records))]
        self.outcomes.extend(outcomes)


Place = tuple[str | bytes, int, bool]
"""The topic name or topic id, the partition number, and True if the batch is transactional."""


class _Appends:
    """The appends of a run, by partition."""

    __slots__ = ("_call", "_replicas", "_topics", "by_id", "by_place", "by_request")

    def __init__(self, topics: Topics, replicas: ReplicaManager, call: Call) -> None:
        self._topics = topics
        self._replicas = replicas
        self._call = call
        self.by_id = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
        self.by_place: dict[Place, _Append] = {}
        self.by_request: dict[int, _Append] = {}
        """The append of each request with only one partition, by the `id()` of the request.

        Several requests of a run may be the same object.
        """

    def add(self, received: Received) -> None:
        """Add the batches of a request to the appends of their partitions."""
        request, records, _ = received
        in_transaction = request.transactional_id is not None
        for topic in request.topic_data:
            named = topic.topic_id if self.by_id else topic.name
            for data in topic.partition_data:
                append = self.at((named, data.index, in_transaction), request)
                # Missing records become an empty batch, which the log rejects.
                append.records.append((data.records or b"") if records is None else records)
                if records is not None:
                    self.by_request[id(request)] = append
                    if append.partition and _is_packed(append.partition, request.acks):
                        append.pack = packer(self._call.version, topic.name, topic.topic_id, data.index)

    def at(self, place: Place, request: ProduceRequest) -> _Append:
        """Return the append of a partition. Create it if it does not exist."""
        if (append := self.by_place.get(place)) is None:
            refusal = _refusal(request, self._call)
            topic, number, _ = place
            append = self.by_place[place] = _Append(
                self._topics, self._replicas, topic, number, request.acks, refusal, self._call.connection
            )
        return append


def _append_all(topics: Topics, replicas: ReplicaManager, run: Run, call: Call) -> _Appends:
    appends = _Appends(topics, replicas, call)
    by_request = appends.by_request
    for received in run:
        append = by_request.get(id(received[0]))
        if append is None:
            appends.add(received)
        else:
            append.records.append(received[1])  # type: ignore[arg-type]  # set because the request has one partition
    for append in appends.by_place.values():
        append.start()
    return appends


def _refusal(request: ProduceRequest, call: Call) -> BarnabasError | None:
    """Return the error that applies to a whole request, or None."""
    if call.version < FIRST_VERSION_WITH_BATCHES:
        return UnsupportedVersionError("message formats before record batches (Kafka 0.11) are not supported")
    if request.acks not in {Acks.NONE, Acks.LEADER, Acks.ALL}:
        return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it must be 0, 1 or -1 (all)")
    if request.transactional_id is not None:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported")
    return None


def _last_offset(info: AppendInfo) -> int:
    return info.last_offset


def _is_packed(partition: LeaderReplica, acks: int) -> bool:
    """Return whether a template can encode the responses.

    It can if no response has to wait, or if all wait for the high watermark.
    """
    return acks == Acks.ALL or partition.acknowledges_at_once(acks)


def _acknowledged_together(run: Run, appends: _Appends) -> Reply | None:
    """Acknowledge all requests of a run with acks=all together, with one wait for the high watermark per partition.

    :returns: None if the requests must be answered separately.
    """
    places = appends.by_place.values()
    if run[0][0].acks != Acks.ALL or all(append.usable_pack for append in places):
        return None
    if not all(append.can_be_packed for append in places):
        return None
    if any(id(request) not in appends.by_request for request, _, _ in run):
        return None
    waiters = [waiter for append in places if (waiter := append.when_all_acknowledged()) is not None]
    appended = []
    for request, _, correlation_id in run:
        append = appends.by_request[id(request)]
        info = append.outcomes.popleft()
        assert isinstance(info, AppendInfo)
        assert append.pack
        appended.append(Appended(request, correlation_id, info, append.pack))
    if waiters:
        return LaterReply(respond_together(appended, waiters), KEPT_BYTES_IN_RUN * len(run), response=[])
    return Reply([each.frame() for each in appended])


async def _respond_later(run: Run, appends: _Appends) -> Sequence[Response]:
    for append in appends.by_place.values():
        await append.wait()
    return _respond_to_all(run, appends)


def _respond_to_all(run: Run, appends: _Appends) -> Sequence[Response]:
    """Return the responses to all requests, in order."""
    if run[0][0].acks == Acks.NONE:
        _check_all_appended(appends)
        return [None] * len(run)
    responses: list[Response] = []
    packed = {
        number: (pack, append.outcomes) for number, append in appends.by_request.items() if (pack := append.usable_pack)
    }
    for request, _, correlation_id in run:
        found = packed.get(id(request))
        if found is not None and isinstance(info := found[1][0], AppendInfo):
            pack, outcomes = found
            outcomes.popleft()
            responses.append(pack(correlation_id, info.base_offset, info.log_append_time_ms, info.log_start_offset))
        else:
            responses.append(_respond(request, appends))
    return responses


def _respond(request: ProduceRequest, appends: _Appends) -> ProduceResponse | Awaitable[ProduceResponse]:
    in_transaction = request.transactional_id is not None
    topics = []
    waiting: Waiting = []
    for topic in request.topic_data:
        results = []
        named = topic.topic_id if appends.by_id else topic.name
        for data in topic.partition_data:
            append = appends.by_place[named, data.index, in_transaction]
            results.append(_result(data.index, append, request, waiting))
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    response = ProduceResponse(responses=topics)
    return Acknowledgement(response, waiting, request.timeout_ms) if waiting else response


def _result(index: int, append: _Append, request: ProduceRequest, waiting: Waiting) -> PartitionProduceResponse:
    outcome = append.next_outcome()
    if isinstance(outcome, BarnabasError):
        result = PartitionProduceResponse(index=index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET)
        refuse(result, outcome)
        if isinstance(outcome, InvalidRecordsError):
            result.record_errors = errors_of_records(outcome, request)
        return result
    result = PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.NONE,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
    )
    assert append.partition
    if exposed := append.partition.when_acknowledged(outcome, request.acks):
        waiting.append((result, exposed))
    return result


def _check_all_appended(appends: _Appends) -> None:
    """Raise the first error of a run with acks=0. The connection is then closed, which notifies the producer.

    :raises ApiError: an append failed.
    """
    for (topic, number, _), append in appends.by_place.items():
        for outcome in append.outcomes:
            if isinstance(outcome, BarnabasError):
                where = f"{topic if isinstance(topic, str) else topic.hex()}-{number}"
                raise ApiError(error_code(outcome), f"{where}, sent with acks=0: {error_message(outcome)}")
