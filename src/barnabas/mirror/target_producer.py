"""Produces to the target: one task per broker sends ready batches without waiting for the responses.

A request contains at most one batch per partition. All requests to a broker use one connection, so the batches of a
partition arrive in order; if they do not, the broker rejects the sequence numbers (KIP-98). Requests contain topic ids
where the broker supports them (KIP-516), so no batch reaches a recreated topic. After any failure,
`PartitionLink.reset_after` requests another read of the target's log: the log, not the error, shows which batches
arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.client.cluster import PRODUCE_VERSION_MAX, STALE_METADATA, Cluster
from barnabas.client.permissions import Need
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.mirror.broker_tasks import BrokerTasks
from barnabas.mirror.errors import MirrorError
from barnabas.mirror.partition_copy import Outgoing
from barnabas.mirror.partition_link import LeaderTerm, PartitionLink
from barnabas.mirror.source_fetcher import OTHER_TOPIC, Links, OnStopped, OnWell
from barnabas.model import Acks
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_PURPOSE = "mirror-produce"
REQUEST_BYTES = 1024 * 1024
"""The size in bytes at which a request is complete; the last batch may exceed it."""
REQUESTS_PER_TURN = 16
TIMEOUT_MS = 30_000
VERSION_WITH_IDS = 13
MARGIN_S = 10.0
"""The time in seconds that the client waits longer than the broker, so that the broker's timeout response arrives
before the client closes the connection."""

PERMANENT = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""The error codes that repeat at each retry until an operator changes a setting or a permission."""

Sent = tuple[PartitionLink, Outgoing]


class TargetProducer:
    """Sends the ready batches of all partitions to their leaders.

    :param on_room: called after each response, when partitions may have space for more batches.
    :param on_well: called with a stopped partition when the target acknowledges a batch of this partition.
    """

    def __init__(
        self,
        cluster: Cluster,
        links: Links,
        clock: Clock,
        on_room: Callable[[], None],
        on_stopped: OnStopped,
        on_well: OnWell,
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._clock = clock
        self._on_room = on_room
        self._on_stopped = on_stopped
        self._on_well = on_well
        self._turn = 0
        self._tasks = BrokerTasks(cluster, self._round, "target")

    async def run(self) -> None:
        """Send until the task is cancelled."""
        await self._tasks.run()

    def wake(self) -> None:
        """Start a round immediately, because batches are ready to send."""
        self._tasks.wake()

    async def _round(self, broker: int) -> bool:
        led = [link for link in self._links.values() if self._cluster.view.leader(link.target) == broker]
        if not any(link.copy.has_ready for link in led):
            return False
        self._turn += 1
        first = self._turn % len(led)  # rotate the partitions: one request may not have space for all of them
        led = led[first:] + led[:first]
        channel = await self._cluster.channel_to(broker, PRODUCE_PURPOSE)
        for link in led:
            term = LeaderTerm(broker, self._cluster.view.leader_epoch(link.target), channel)
            if link.copy.is_placed and link.target_term != term:
                link.recheck()  # a new leader may have truncated the log since the last read
        has_ids = all(link.target_topic_id != ZERO_UUID for link in led)
        version = min(channel.version_for(ProduceRequest), VERSION_WITH_IDS if has_ids else PRODUCE_VERSION_MAX)
        timeout_s = TIMEOUT_MS / 1000 + MARGIN_S
        unsent = requests = 0
        while requests < REQUESTS_PER_TURN and (sent := self._gathered(led)):
            try:
                channel.submit(_request(sent), partial(self._on_answer, sent), version=version, timeout_s=timeout_s)
            except BarnabasError as error:
                self._failed(sent, error)
                raise
            requests += 1
            unsent += sum(outgoing.size for _, outgoing in sent)
            if unsent >= REQUEST_BYTES:
                channel.flush()
                unsent = 0
        channel.flush()
        return requests > 0

    def _gathered(self, led: list[PartitionLink]) -> list[Sent]:
        now_s = self._clock.monotonic()
        sent: list[Sent] = []
        size = 0
        for link in led:
            if link.stopped is not None or size >= REQUEST_BYTES:
                continue
            if link.copy.is_stale(now_s):
                link.recheck()
                continue
            outgoing = link.copy.next_to_send(now_s)
            if outgoing is not None:
                sent.append((link, outgoing))
                size += outgoing.size
        return sent

    def _on_answer(self, sent: list[Sent], response: ProduceResponse | None, error: BarnabasError | None) -> None:
        if error is not None or response is None:
            self._failed(sent, error)
            self._cluster.request_refresh(is_stale=True)
            self._on_room()
            return
        answers: dict[tuple[str | bytes, int], PartitionProduceResponse] = {}
        for topic in response.responses:
            named = topic.name or topic.topic_id
            for each in topic.partition_responses:
                answers[named, each.index] = each
        now_s = self._clock.monotonic()
        for link, outgoing in sent:
            if link.copy.is_under_way(outgoing):
                topic_name, partition = link.target
                answer = answers.get((topic_name, partition)) or answers.get((link.target_topic_id, partition))
                self._take(link, outgoing, answer, now_s)
        self._on_room()

    def _failed(self, sent: list[Sent], error: BarnabasError | None) -> None:
        for link, outgoing in sent:
            if link.copy.is_under_way(outgoing):
                link.reset_after(f"target: {error}")

    def _take(
        self, link: PartitionLink, outgoing: Outgoing, answer: PartitionProduceResponse | None, now_s: float
    ) -> None:
        if answer is None or answer.error_code:
            self._refused(link, outgoing, answer)
        elif link.copy.acknowledged(outgoing, answer.base_offset, now_s):
            counts = link.counts
            counts.records += outgoing.count
            counts.bytes += outgoing.size
            counts.batches += 1
            link.tries, link.trouble = 0, None
            if not link.works:
                link.works = True
                self._on_well(link)
        else:
            link.reset_after(
                f"target: batch stored at offset {answer.base_offset}, expected offset {outgoing.target_offset}"
            )

    def _refused(self, link: PartitionLink, outgoing: Outgoing, answer: PartitionProduceResponse | None) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode.of(answer.error_code)
        if answer is not None and code in PERMANENT:
            error = ApiError(code, answer.error_message or "")
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                error = self._cluster.refused(error, Need("write", "topic", link.target.topic))
            self._on_stopped(link, MirrorError(f"{link.source}: {_refusal(outgoing, answer, error)}"))
            return
        if code in STALE_METADATA or code in OTHER_TOPIC:
            self._cluster.request_refresh(is_stale=True)
        link.reset_after(f"target: {code.name} ({outgoing.source_offsets})")


def _refusal(outgoing: Outgoing, answer: PartitionProduceResponse, error: ApiError) -> str:
    """Return an error text with the rejected source offsets and the reason."""
    where, reason = outgoing.source_offsets, error.reason or error.code.name
    if answer.record_errors:
        record = answer.record_errors[0]
        reason = record.batch_index_error_message or reason
        offset = outgoing.source_offset_of(record.batch_index)
        where = where if offset is None else f"source offset {offset}"
    return f"the target refuses {where}: {reason}"


def _request(sent: list[Sent]) -> ProduceRequest:
    topics: dict[tuple[str, bytes], list[PartitionProduceData]] = {}
    for link, outgoing in sent:
        part = PartitionProduceData(index=link.target.partition, records=outgoing.batch)
        topics.setdefault((link.target.topic, link.target_topic_id), []).append(part)
    return ProduceRequest(
        acks=int(Acks.ALL),
        timeout_ms=TIMEOUT_MS,
        topic_data=[
            TopicProduceData(name=name, topic_id=each, partition_data=parts) for (name, each), parts in topics.items()
        ],
    )
