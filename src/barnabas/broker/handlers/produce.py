"""Produce, versions 0 to 13: append record batches.

Requests that came in a row are carried out together: what they bring for one partition is appended with one write.
Each is judged, and answered, as if it had come alone.

Versions 0 to 2 are advertised because librdkafka stops compressing without them (KAFKA-18659); their message
formats are not stored, so every partition is answered with UNSUPPORTED_VERSION. Batches of transactions are
refused until transactions exist. Errors of single records are not told (version 8): the broker does not look at
single records. Nor is it told where new leaders are (version 10): there is one broker.

What an acknowledgement means, and when it has to wait for the disk, stands in `barnabas.broker.partition`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.api import Context, Repeated, serves_runs
from barnabas.broker.error_codes import error_code, error_message
from barnabas.errors import (
    BarnabasError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, Acks
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker
    from barnabas.broker.partition import Partition
    from barnabas.records.header import Buffer
    from barnabas.storage.append_group import Outcome

    Waiting = list[tuple[PartitionProduceResponse, asyncio.Future[None]]]
    """Acknowledgements, and what each has to wait for."""

FIRST_VERSION_WITH_BATCHES = 3
FIRST_VERSION_WITH_TOPIC_IDS = 13


@serves_runs(ProduceRequest)
def produce(
    broker: Broker, requests: Iterable[Repeated], context: Context
) -> Sequence[ProduceResponse | Awaitable[ProduceResponse | None] | None]:
    """Append each partition's batches, of all requests that ask for the same acknowledgement as the first one.

    :raises BarnabasError: an append failed and acks=0 leaves no other way to tell than to end the connection.
    """
    run: list[Repeated] = []
    for repeated in requests:
        if run and repeated.request.acks != run[0].request.acks:
            break
        run.append(repeated)
    appends = _append_all(broker, run, context)
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    if any(append.is_waiting for append in appends.values()):
        responses = asyncio.get_running_loop().create_task(_respond_later(run, appends, by_id))
        return [_one_of(responses, number) for number in range(sum(repeated.times for repeated in run))]
    return _respond_to_all(run, appends, by_id)


class _Appends:
    """What a run of requests brings for one partition, and what became of it, in the order of the requests."""

    __slots__ = ("_refusal", "_waiting", "outcomes", "partition", "records")

    def __init__(
        self, broker: Broker, topic: str | bytes, number: int, acks: int, refusal: BarnabasError | None
    ) -> None:
        self.records: list[Buffer] = []
        self.partition: Partition | None = None
        self.outcomes: Iterator[Outcome] = iter(())
        self._waiting: asyncio.Future[list[Outcome]] | None = None
        self._refusal = refusal
        if refusal:
            return
        try:
            name = topic if isinstance(topic, str) else broker.topics.name_of(topic)
            partition = broker.topics.partition(name, number)
            if acks == Acks.ALL:
                partition.check_replicas()
            self.partition = partition
        except BarnabasError as error:
            self._refusal = error

    @property
    def is_waiting(self) -> bool:
        """Whether the outcomes are not there yet."""
        return self._waiting is not None

    def carry_out(self) -> None:
        if self.partition is None:
            assert self._refusal
            self.outcomes = iter([self._refusal] * len(self.records))
            return
        outcomes = self.partition.append_all(self.records)
        if isinstance(outcomes, asyncio.Future):
            self._waiting = outcomes
        else:
            self.outcomes = iter(outcomes)

    async def wait(self) -> None:
        """Wait until the outcomes are there."""
        if self._waiting is not None:
            self.outcomes = iter(await self._waiting)


Place = tuple[str | bytes, int, bool]
"""Name or id of the topic, partition, and whether it is a transaction that wants to write there."""


def _append_all(broker: Broker, run: Sequence[Repeated], context: Context) -> dict[Place, _Appends]:
    appends: dict[Place, _Appends] = {}
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    for repeated in run:
        request = repeated.request
        in_transaction = request.transactional_id is not None
        for topic in request.topic_data:
            named = topic.topic_id if by_id else topic.name
            for data in topic.partition_data:
                place = named, data.index, in_transaction
                if (append := appends.get(place)) is None:
                    refusal = _refusal(request, context)
                    append = appends[place] = _Appends(broker, named, data.index, request.acks, refusal)
                append.records += _records(data, repeated)
    for append in appends.values():
        append.carry_out()
    return appends


def _records(data: PartitionProduceData, repeated: Repeated) -> Sequence[Buffer]:
    """Return what each of the requests brings for one of its partitions; the log refuses where that is nothing."""
    if data.records is None:
        return [b""] * repeated.times
    return repeated.records or [data.records]


def _refusal(request: ProduceRequest, context: Context) -> BarnabasError | None:
    """Return why nothing of the request can be appended, or None."""
    if context.version < FIRST_VERSION_WITH_BATCHES:
        return UnsupportedVersionError("message formats before record batches (Kafka 0.11) are not stored")
    if request.acks not in {Acks.NONE, Acks.LEADER, Acks.ALL}:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {request.acks}")
    if request.transactional_id is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    return None


Response: TypeAlias = "ProduceResponse | Awaitable[ProduceResponse] | None"


async def _respond_later(run: Sequence[Repeated], appends: dict[Place, _Appends], by_id: bool) -> Sequence[Response]:
    for append in appends.values():
        await append.wait()
    return _respond_to_all(run, appends, by_id)


async def _one_of(responses: asyncio.Task[Sequence[Response]], number: int) -> ProduceResponse | None:
    response = (await asyncio.shield(responses))[number]
    return response if response is None or isinstance(response, ProduceResponse) else await response


def _respond_to_all(run: Sequence[Repeated], appends: dict[Place, _Appends], by_id: bool) -> Sequence[Response]:
    """Return a response for each request, in their order, in which the outcomes are dealt out."""
    if run[0].request.acks == Acks.NONE:
        _check_all_appended(appends)
        return [None] * sum(repeated.times for repeated in run)
    return [_respond(repeated.request, appends, by_id) for repeated in run for _ in range(repeated.times)]


def _respond(
    request: ProduceRequest, appends: dict[Place, _Appends], by_id: bool
) -> ProduceResponse | Awaitable[ProduceResponse]:
    in_transaction = request.transactional_id is not None
    topics = []
    waiting: Waiting = []
    for topic in request.topic_data:
        results = []
        named = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            append = appends[named, data.index, in_transaction]
            results.append(_result(data.index, append, request.acks, waiting))
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    response = ProduceResponse(responses=topics)
    return _acknowledge_later(response, waiting, request.timeout_ms) if waiting else response


def _result(index: int, append: _Appends, acks: int, waiting: Waiting) -> PartitionProduceResponse:
    outcome = next(append.outcomes)
    if isinstance(outcome, BarnabasError):
        result = PartitionProduceResponse(index=index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET)
        _refuse(result, outcome)
        return result
    result = PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.NONE,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
    )
    assert append.partition
    if exposed := append.partition.when_acknowledged(outcome, acks):
        waiting.append((result, exposed))
    return result


async def _acknowledge_later(response: ProduceResponse, waiting: Waiting, timeout_ms: int) -> ProduceResponse:
    futures = [future for _, future in waiting]
    try:
        await asyncio.wait(futures, timeout=max(0, timeout_ms) / 1000)
    finally:
        for future in futures:
            future.cancel()
    for result, future in waiting:
        if future.cancelled():
            message = f"not flushed within {timeout_ms} ms; it may be later"
            _refuse(result, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
        elif error := future.exception():
            assert isinstance(error, BarnabasError)
            _refuse(result, error)
    return response


def _refuse(result: PartitionProduceResponse, error: BarnabasError) -> None:
    result.error_code, result.error_message = error_code(error), error_message(error)
    result.base_offset = result.log_start_offset = NO_OFFSET
    result.log_append_time_ms = NO_TIMESTAMP


def _check_all_appended(appends: dict[Place, _Appends]) -> None:
    """Raise the first error: without acknowledgements, the end of the connection is what the producer notices."""
    for (topic, number, _), append in appends.items():
        for outcome in append.outcomes:
            if isinstance(outcome, BarnabasError):
                where = f"{topic if isinstance(topic, str) else topic.hex()}-{number}"
                raise KafkaError(error_code(outcome), f"{where}, sent with acks=0: {error_message(outcome)}")
