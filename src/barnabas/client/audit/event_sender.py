"""Sends the monitoring events of a client to the topic `_audit`, over the connections of the client.

A client sends a report every few seconds and on request, one report at a time. Events are cumulative, so duplicate or
reordered events are harmless, and need no sequence numbers. The sender creates the topic if it does not exist.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

from barnabas.audit.events import MonitoringEvent
from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.cluster import PRODUCE_VERSION_MAX, Cluster
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.records import BatchBuilder, Compression, murmur2

log = logging.getLogger(__name__)

AUDIT_TOPIC = "_audit"
AUDIT_TOPIC_CONFIG = {"cleanup.policy": "compact"}

REPORT_S_MAX = 10.0
"""The time limit of one report, in seconds."""

INTERVAL_S = 5.0
"""The interval in seconds between two reports, while there are unreported counts."""

BATCH_BYTES = 256 * 1024
"""The approximate maximum size of the events in one request, before compression."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def topic_id_of(cluster: Cluster, name: str) -> str:
    """Return the id of a topic in hexadecimal; an empty string if it is unknown, or the brokers have no topic ids."""
    view = cluster.view.topics.get(name)
    return "" if view is None or view.topic_id == ZERO_UUID else view.topic_id.hex()


class PeriodicReports:
    """Calls a report function every few seconds on the event loop, from `begin` to `end`."""

    def __init__(self, report: Callable[[], Awaitable[None]]) -> None:
        self._report = report
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start to report after each interval."""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self._report()
            except Exception:
                log.exception("a report to the audit failed because of a defect; retrying in %g s", INTERVAL_S)

    async def end(self) -> None:
        """Stop the reports, and cancel the current one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class EventSender:
    """Sends the events of one client, on its event loop."""

    def __init__(self, cluster: Cluster, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms
        self._has_topic = False
        self._warned_of: set[str] = set()

    def forget_topic(self) -> None:
        """Check before the next request again whether the topic exists, because it may have been deleted."""
        self._has_topic = False

    async def ensure_topic(self) -> bool:
        """Create the topic if it does not exist. Return True if it was created, so that it is empty."""
        if self._has_topic:
            return False
        is_new = True
        try:
            await create_topic(
                self._cluster, AUDIT_TOPIC, partitions=1, replication_factor=None, config=AUDIT_TOPIC_CONFIG,
                timeout_ms=int(REPORT_S_MAX * 1000),
            )  # fmt: skip
        except ApiError as error:
            # A principal with WRITE on the existing topic needs no CREATE.
            refused = error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and await self._exists()
            if not refused and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            is_new = False
        self._has_topic = True
        return is_new

    async def _exists(self) -> bool:
        (found,) = await self._cluster.describe([AUDIT_TOPIC])
        return found.error is ErrorCode.NONE

    async def send(self, events: Iterable[MonitoringEvent]) -> list[MonitoringEvent]:
        """Send events. The method returns when all in-sync replicas have the events.

        :returns: the events that exceed the maximum message size; a warning names the first of them for each topic.
        :raises BarnabasError: the request failed; the log may contain some of the events.
        """
        partitions = len((await self._cluster.topic(AUDIT_TOPIC, timeout_s=REPORT_S_MAX)).partitions)
        refused: list[MonitoringEvent] = []
        for partition, batch in _batches(events, partitions):
            refused += await self._send_parts(TopicPartition(AUDIT_TOPIC, partition), batch)
        for event in refused:
            if event.topic not in self._warned_of:
                self._warned_of.add(event.topic)
                log.warning(
                    "the audit's events of topic %s, the first of window %d ms, exceed max.message.bytes of topic %s; "
                    "these windows stay open in the audit; increase the setting",
                    event.topic, event.window_ms, AUDIT_TOPIC,
                )  # fmt: skip
        return refused

    async def _send_parts(self, where: TopicPartition, events: list[MonitoringEvent]) -> list[MonitoringEvent]:
        """Send a batch of events, and split it if it is too large. Return each event that is too large on its own."""
        try:
            await self._cluster.retrying(
                lambda: self._send_batch(where, events),
                what=f"cannot write to topic {AUDIT_TOPIC}",
                timeout_s=REPORT_S_MAX,
            )
        except ApiError as error:
            if error.code not in TOO_LARGE:
                raise
            if len(events) == 1:
                return events
            middle = len(events) // 2
            return [*await self._send_parts(where, events[:middle]), *await self._send_parts(where, events[middle:])]
        return []

    async def _send_batch(self, where: TopicPartition, events: list[MonitoringEvent]) -> None:
        self._cluster.use_topics([where.topic])
        leader = self._cluster.view.leader(where)
        if leader is None:
            leader = (await self._cluster.refresh()).leader(where)
        if leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{where} has no leader")
        builder = BatchBuilder(Compression.LZ4)
        for event in events:
            builder.append(max(event.window_ms, 0), event.key, event.to_json())
        data = PartitionProduceData(index=where.partition, records=builder.build())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[data])],
        )
        response: ProduceResponse = await self._cluster.send(leader, request, version_max=PRODUCE_VERSION_MAX)
        answers = {
            (topic.name, answer.index): answer for topic in response.responses for answer in topic.partition_responses
        }
        found = answers.get((where.topic, where.partition))
        if found is None:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the produce response does not contain the partition",
                subject=str(where),
            )
        if found.error_code:
            error = ApiError(found.error_code, found.error_message or "", subject=str(where))
            raise self._cluster.refused(error, Need("write", "topic", where.topic))


class SerialReports:
    """The reports of one client, on its event loop: one at a time, each with a time limit."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self._turn = asyncio.Lock()
        self._is_warned = False
        self.is_in_trouble = False
        """True if the last report failed even though its time limit was the full `REPORT_S_MAX`."""

    def on_success(self) -> None:
        """Record that a report has succeeded."""
        self.is_in_trouble = self._is_warned = False

    async def run(self, report: Callable[[], Awaitable[None]], timeout_s: float | None) -> None:
        """Run a report, after the report in progress. The first of several consecutive failures is logged as a warning.

        :param timeout_s: the time limit in seconds, at most `REPORT_S_MAX`.
        """
        limit_s = REPORT_S_MAX if timeout_s is None else min(timeout_s, REPORT_S_MAX)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit, self._turn:
                await report()
        except (BarnabasError, TimeoutError) as error:
            self._sender.forget_topic()
            if limit_s >= REPORT_S_MAX or not limit.expired():
                self.is_in_trouble = True
            if not self._is_warned:
                self._is_warned = True
                reason = str(error) or f"no answer within {limit_s:g} s"
                log.warning("cannot report to the audit: %s; retrying every %g s", reason, INTERVAL_S)


def _batches(events: Iterable[MonitoringEvent], partitions: int) -> Iterator[tuple[int, list[MonitoringEvent]]]:
    """Group events into batches by the partitions of their keys."""
    open_ones: dict[int, list[MonitoringEvent]] = {}
    size_bytes: dict[int, int] = {}
    for event in events:
        partition = (murmur2(event.key) & 0x7FFFFFFF) % partitions
        open_ones.setdefault(partition, []).append(event)
        size_bytes[partition] = size_bytes.get(partition, 0) + event.size_bytes
        if size_bytes[partition] >= BATCH_BYTES:
            size_bytes[partition] = 0
            yield partition, open_ones.pop(partition)
    yield from open_ones.items()
