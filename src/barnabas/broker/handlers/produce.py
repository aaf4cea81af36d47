"""Produce, versions 0 to 13: append record batches.

Requests that came in a row are carried out together: what they bring for one partition is appended with one write.
Each is judged, and answered, as if it had come alone.

Versions 0 to 2 are advertised because librdkafka stops compressing without them (KAFKA-18659); their message
formats are not stored, so every partition is answered with UNSUPPORTED_VERSION. Batches of transactions are
refused until transactions exist. Errors of single records are told of compacted topics only (version 8), which take no
records without keys: elsewhere the broker does not look at single records. At most 1,000 are told in an answer, shared
out among its partitions, and at least one of each batch. It is not told where new leaders are (version 10): clients
ask for metadata.

What an acknowledgement means, and when it has to wait for the disk, stands in `barnabas.broker.leader_replica`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.internal_topics import check_not_internal
from barnabas.broker.pipeline.call import Call, Received, Run
from barnabas.broker.pipeline.reply import LaterReply, Reply
from barnabas.broker.pipeline.served_api import serves
from barnabas.broker.produce_answers import (
    Acknowledgement,
    Appended,
    PackAnswer,
    Response,
    Settling,
    Waiting,
    errors_of_records,
    packer,
    refuse,
    respond_together,
)
from barnabas.broker.produce_runs import ProduceRuns
from barnabas.broker.refused_batches import RefusedBatches
from barnabas.errors import (
    ApiError,
    BarnabasError,
    ErrorCode,
    UnsupportedVersionError,
)
from barnabas.model import NO_OFFSET, Acks
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.storage.log_appender import AppendInfo, InvalidRecordsError

if TYPE_CHECKING:
    from barnabas.broker.acknowledgements import Waiter
    from barnabas.broker.leader_replica import LeaderReplica
    from barnabas.broker.pipeline.connection_state import ConnectionState
    from barnabas.broker.replica_manager import ReplicaManager
    from barnabas.broker.topics import Topics
    from barnabas.records.header import Buffer
    from barnabas.storage.log_appender import Outcome

FIRST_VERSION_WITH_BATCHES = 3
FIRST_VERSION_WITH_TOPIC_IDS = 13

KEPT_BYTES_IN_RUN = 1_024
"""What a request of a run keeps while its acknowledgement waits: its answer."""


@serves(ProduceRequest, runs=ProduceRuns())
def produce(topics: Topics, replicas: ReplicaManager, run: Run, call: Call) -> Reply:
    """Append each partition's batches, of all requests of a run.

    :raises BarnabasError: an append failed and acks=0 leaves no other way to tell than to end the connection.
    """
    appends = _append_all(topics, replicas, run, call)
    if any(append.is_waiting for append in appends.by_place.values()):
        responding = asyncio.get_running_loop().create_task(_respond_later(run, appends))
        return LaterReply(Settling(responding), KEPT_BYTES_IN_RUN * len(run), before=[responding], response=[])
    return _acknowledged_together(run, appends) or _reply(_respond_to_all(run, appends))


def _reply(responses: Sequence[Response]) -> Reply:
    """Return the responses up to the first one that has to wait now, and those behind it later."""
    for number, response in enumerate(responses):
        if type(response) is not bytes and isinstance(response, Awaitable):
            rest = responses[number:]
            return LaterReply(Settling(rest), KEPT_BYTES_IN_RUN * len(rest), response=responses[:number])
    return Reply(responses)


class _Append:
    """What a run of requests brings for one partition, and what became of it, in the order of the requests."""

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
        """Makes the answer to a request for this partition alone, once that is in the log; None where an answer may
        have to wait for more than that."""
        self._waiting: asyncio.Future[list[Outcome]] | None = None
        self._acks = acks
        self._refusal = refusal
        if refusal:
            return
        try:
            name = topic if isinstance(topic, str) else topics.name_of(topic)
            partition = replicas.leader(name, number)
            check_not_internal(name, "clients cannot write to it")
            if acks == Acks.ALL:
                partition.check_replicas()
            self.partition = partition
        except BarnabasError as error:
            self._refusal = error

    @property
    def is_waiting(self) -> bool:
        """Whether the outcomes are not there yet."""
        return self._waiting is not None

    @property
    def can_be_packed(self) -> bool:
        """Whether all was appended, and each answer can be made from the pattern once all is acknowledged."""
        return self.pack is not None and all(isinstance(outcome, AppendInfo) for outcome in self.outcomes)

    def when_all_acknowledged(self) -> Waiter | None:
        """Return what has to be waited for before all that was appended is acknowledged."""
        assert self.partition
        last = max((each for each in self.outcomes if isinstance(each, AppendInfo)), key=_last_offset)
        return self.partition.when_acknowledged(last, self._acks)

    @property
    def usable_pack(self) -> PackAnswer | None:
        """`pack`, if it may make answers now that the outcomes are there: a flush policy may be in force since."""
        return self.pack if self.partition is not None and self.partition.acknowledges_at_once(self._acks) else None

    def carry_out(self) -> None:
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
        """Wait until the outcomes are there."""
        if self._waiting is not None:
            self._take(await self._waiting)

    def next_outcome(self) -> Outcome:
        """Return the outcome of the next of the requests, which are to be answered in their order."""
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
"""Name or id of the topic, partition, and whether it is a transaction that wants to write there."""


class _Appends:
    """All that a run of requests brings."""

    __slots__ = ("_call", "_replicas", "_topics", "by_id", "by_place", "by_request")

    def __init__(self, topics: Topics, replicas: ReplicaManager, call: Call) -> None:
        self._topics = topics
        self._replicas = replicas
        self._call = call
        self.by_id = call.version >= FIRST_VERSION_WITH_TOPIC_IDS
        self.by_place: dict[Place, _Append] = {}
        self.by_request: dict[int, _Append] = {}
        """By `id()` of a request for one partition: the same object stands for many of them."""

    def add(self, received: Received) -> None:
        """Let the batches of a request be appended where it wants them."""
        request, records, _ = received
        in_transaction = request.transactional_id is not None
        for topic in request.topic_data:
            named = topic.topic_id if self.by_id else topic.name
            for data in topic.partition_data:
                append = self.at((named, data.index, in_transaction), request)
                # The log refuses where there is nothing.
                append.records.append((data.records or b"") if records is None else records)
                if records is not None:
                    self.by_request[id(request)] = append
                    if append.partition and _is_packed(append.partition, request.acks):
                        append.pack = packer(self._call.version, topic.name, topic.topic_id, data.index)

    def at(self, place: Place, request: ProduceRequest) -> _Append:
        """Return what comes to a place."""
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
            append.records.append(received[1])  # type: ignore[arg-type]  # a request for one partition has them there
    for append in appends.by_place.values():
        append.carry_out()
    return appends


def _refusal(request: ProduceRequest, call: Call) -> BarnabasError | None:
    """Return why nothing of the request can be appended, or None."""
    if call.version < FIRST_VERSION_WITH_BATCHES:
        return UnsupportedVersionError("message formats before record batches (Kafka 0.11) are not stored")
    if request.acks not in {Acks.NONE, Acks.LEADER, Acks.ALL}:
        return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {request.acks}")
    if request.transactional_id is not None:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    return None


def _last_offset(info: AppendInfo) -> int:
    return info.last_offset


def _is_packed(partition: LeaderReplica, acks: int) -> bool:
    """Whether answers are made from the pattern: nothing is waited for, or all wait for the high watermark."""
    return acks == Acks.ALL or partition.acknowledges_at_once(acks)


def _acknowledged_together(run: Run, appends: _Appends) -> Reply | None:
    """Answer requests with acks=all that all have to wait for the high watermark with one wait for each partition.

    :returns: None if they have to be answered one by one.
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
    """Return a response for each request, in their order, in which the outcomes are dealt out."""
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
    """Raise the first error: without acknowledgements, the end of the connection is what the producer notices."""
    for (topic, number, _), append in appends.by_place.items():
        for outcome in append.outcomes:
            if isinstance(outcome, BarnabasError):
                where = f"{topic if isinstance(topic, str) else topic.hex()}-{number}"
                raise ApiError(error_code(outcome), f"{where}, sent with acks=0: {error_message(outcome)}")
