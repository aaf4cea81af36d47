"""Fetches from the source: one task per broker sends one fetch at a time, for all partitions with free buffer space.

Requests contain topic ids where the broker supports them (KIP-516). A recreated topic has another id, so the mirror
never confuses the records of the new topic with the records of the deleted topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.client.cluster import FETCH_VERSION_MAX, STALE_METADATA, Cluster
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.mirror.broker_tasks import BrokerTasks
from barnabas.mirror.errors import MirrorError
from barnabas.mirror.partition_link import LeaderTerm, PartitionLink
from barnabas.model import TopicPartition
from barnabas.net.client_connection import RequestBackoff
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.records import iter_headers

FETCH_PURPOSE = "mirror-fetch"
FETCH_BYTES = 8 * 1024 * 1024
PARTITION_BYTES = 2 * 1024 * 1024
MAX_WAIT_MS = 500
FULL_WAIT_MS = 10
"""The maximum wait in ms of a fetch while some partitions have no free buffer space. It is short, because these
partitions will need a fetch soon."""
PARTITIONS_MAX = 2_000
"""The maximum number of partitions in one fetch. If there are more, they take turns."""
HELD_BYTES_MAX = 64 * 1024 * 1024
"""The maximum number of buffered bytes over all partitions. Outstanding fetches may exceed this limit by FETCH_BYTES
per broker."""
REFUSED_S = 0.25
"""The pause in seconds before the mirror fetches a partition again after a fetch error, for example after an
election."""
VERSION_WITH_IDS = 13
OTHER_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
"""The error codes for a topic that was deleted, and possibly recreated."""

log = logging.getLogger(__name__)

Links = Mapping[TopicPartition, PartitionLink]
OnStopped = Callable[[PartitionLink, MirrorError], None]
OnWell = Callable[[PartitionLink], None]


class SourceFetcher:
    """Fetches records for all partitions of the mirror.

    :param links: the partitions by source partition; the mirror changes the mapping while the fetcher runs.
    :param on_ready: called when batches are ready to send.
    :param on_well: called with a stopped partition when its target has all records of the source.
    """

    def __init__(
        self,
        cluster: Cluster,
        links: Links,
        clock: Clock,
        on_ready: Callable[[], None],
        on_stopped: OnStopped,
        on_well: OnWell,
    ) -> None:
        self._cluster = cluster
        self._links = links
        self._clock = clock
        self._on_well = on_well
        self._on_ready = on_ready
        self._on_stopped = on_stopped
        self._turn = 0
        self._tasks = BrokerTasks(cluster, self._round, "source")
        self._pacings: dict[int, RequestBackoff] = {}

    async def run(self) -> None:
        """Fetch until the task is cancelled."""
        await self._tasks.run()

    def wake(self) -> None:
        """Start a round immediately, because a partition has free buffer space or is new."""
        self._tasks.wake()

    async def _round(self, broker: int) -> bool:
        """Fetch once from a broker; return whether a fetch was sent."""
        view = self._cluster.view
        if sum(link.copy.held_bytes for link in self._links.values()) >= HELD_BYTES_MAX:
            return False
        led = [link for link in self._links.values() if view.leader(link.source) == broker]
        if not led:
            return False
        channel = await self._cluster.channel_to(broker, FETCH_PURPOSE)
        for each in led:
            term = LeaderTerm(broker, view.leader_epoch(each.source), channel)
            if each.copy.is_placed and each.source_term != term:
                each.recheck()  # a new leader may have truncated the log since the last read
        now_s = self._clock.monotonic()
        wanting = [link for link in led if link.wants_data and now_s - link.refused_at_s >= REFUSED_S]
        if not wanting:
            return False
        # Rotate the partitions. Brokers fill a response in the order of the request, and only the first partition may
        # get a batch larger than the requested size.
        self._turn += PARTITIONS_MAX if len(wanting) > PARTITIONS_MAX else 1
        start = self._turn % len(wanting)
        asked = (wanting[start:] + wanting[:start])[:PARTITIONS_MAX]
        are_full = len(asked) < len([link for link in led if link.stopped is None])
        offsets = {link.source: (link, link.copy.position) for link in asked}
        names = {link.source_topic_id: link.source.topic for link in asked}
        wait_ms = FULL_WAIT_MS if are_full else MAX_WAIT_MS
        response: FetchResponse = await self._cluster.ask(
            channel,
            _request(offsets.values(), wait_ms),
            version_max=FETCH_VERSION_MAX if ZERO_UUID in names else VERSION_WITH_IDS,
        )
        has_news = False
        for topic in response.responses:
            for answer in topic.partitions:
                tp = TopicPartition(topic.topic or names.get(topic.topic_id, ""), answer.partition_index)
                link, asked_for = offsets.get(tp, (None, 0))
                if link is not None and self._links.get(tp) is link:
                    has_news = has_news or bool(answer.records)
                    self._take(link, answer, asked_for)
        self._on_ready()
        await self._pace(broker, 2_000 * (self._clock.monotonic() - now_s) >= wait_ms, has_news)
        return True

    async def _pace(self, broker: int, has_waited: bool, has_news: bool) -> None:
        """Delay the next fetch if the broker repeatedly returns empty responses before the maximum wait has passed."""
        pacing = self._pacings.setdefault(broker, RequestBackoff(REFUSED_S))
        if has_waited or has_news:
            pacing.note_progress()
            return
        now_s = self._clock.monotonic()
        pacing.note_futile(now_s)
        await asyncio.sleep(pacing.wait_s(now_s))

    def _take(self, link: PartitionLink, answer: Any, asked_for: int) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            link.is_out_of_range = True
            link.attention.set()
            return
        if code is not ErrorCode.NONE:
            link.refuse(code.name, self._clock.monotonic())
            if code in STALE_METADATA or code in OTHER_TOPIC:
                self._cluster.request_refresh(is_stale=True)
            return
        link.refusals, link.refused = 0, None
        link.note_source_end(answer.high_watermark, self._clock.monotonic())
        if not answer.records:
            if link.lag == 0:
                self._has_all(link)
            return
        try:
            _, first = next(iter_headers(answer.records, partial_ok=True), (0, None))
            if first is not None and first.leader_epoch > link.source_epoch and link.copy.is_placed:
                # A new leader wrote this batch. It may have truncated the log before.
                link.source_epoch = first.leader_epoch
                link.recheck()
                self._cluster.request_refresh()
                return
            link.copy.take(answer.records, asked_for)
        except MirrorError as error:
            self._on_stopped(link, error)
        except BarnabasError as error:  # the batch was damaged on the network or on the source's disk
            link.reset_after(f"source, offset {link.copy.position}: {error}")

    def _has_all(self, link: PartitionLink) -> None:
        """Clear the failures of a partition whose records are all in the target."""
        link.tries, link.trouble = 0, None
        if not link.works:
            link.works = True
            self._on_well(link)


def _request(offsets: Iterable[tuple[PartitionLink, int]], max_wait_ms: int) -> FetchRequest:
    topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for link, offset in offsets:
        where = link.source
        part = FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        topics.setdefault((where.topic, link.source_topic_id), []).append(part)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=name, topic_id=each, partitions=parts) for (name, each), parts in topics.items()],
    )
