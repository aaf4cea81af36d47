"""Reads ranges of partitions as raw batches, at the full speed of the broker, for bulk loads.

A program that reads many ranges passes one `RangeSource` to all readers. Otherwise each reader needs a new thread and a
new connection, which take longer than the fetch of a small range. The reader decodes nothing. The next fetch is in
flight while the program uses the last response, so at most two responses are in memory.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack

from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.cluster import FETCH_VERSION_MAX, UNKNOWN_TOPIC_PATIENCE_S, Cluster, dial_with
from barnabas.client.config import Bootstrap, ClientConfig, make_config
from barnabas.client.consumer.fetcher import end_of_batches
from barnabas.client.permissions import Need
from barnabas.client.setting_types import ClientSettings
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, CorruptBatchError, ErrorCode, TimedOutError
from barnabas.model import TopicPartition
from barnabas.net.client_connection import RequestBackoff
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_BYTES_MIN = 128 * 1024
OFFSET_BYTES_GUESS = 100
"""The assumed number of bytes per offset before the first response. A reader uses it to limit its fetch near the end of
the range.
"""
MAX_WAIT_MS = 500


class RangeSource:
    """Connections to the brokers, with their background thread, which several readers use one after another.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param settings: the fields of `barnabas.client.config.ClientConfig`.
    """

    def __init__(self, bootstrap: Bootstrap, **settings: Unpack[ClientSettings]) -> None:
        config = make_config(ClientConfig, bootstrap, settings)
        self.cluster = Cluster(config, dial=dial_with(config), clock=SYSTEM_CLOCK, random=random.random)
        self.thread = LoopThread("barnabas-range-reader")
        self.thread.end_with(self, self.cluster.finish, "a RangeReader")

    def close(self) -> None:
        """Close the connections and stop the background thread. Further calls do nothing."""
        if self.thread.begin_close():
            self.thread.stop(self.cluster.finish)


class RangeReader:
    """Iterates over the batches that contain the offsets from `start_offset` up to, but not including, `end_offset`.

    Each item is a memoryview of whole batches. The first batch may begin before `start_offset`, the last may end after
    `end_offset`. Every record of the range is in exactly one item. Not thread-safe, except for `close`.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names; or a `RangeSource`, which stays
        open.
    :param fetch_max_bytes: the maximum bytes of a response, except for a single larger batch.
    :param settings: the fields of `barnabas.client.config.ClientConfig`; not allowed with a `RangeSource`.

    Iteration raises ApiError with OFFSET_OUT_OF_RANGE if retention has deleted records of the range. It raises
    TimedOutError if no record of the range arrives within `default_api_timeout_ms`; the message contains the cause. The
    next call retries. After `close`, iteration raises ClosedError.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | RangeSource,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        *,
        fetch_max_bytes: int = FETCH_BYTES_MAX,
        **settings: Unpack[ClientSettings],
    ) -> None:
        self._own = None if isinstance(bootstrap, RangeSource) else RangeSource(bootstrap, **settings)
        source = bootstrap if isinstance(bootstrap, RangeSource) else self._own
        assert source is not None, "one of the two"
        self._cluster, self._thread = source.cluster, source.thread
        self._tp = TopicPartition(topic, partition)
        self._next_offset = start_offset
        self._end_offset = end_offset
        self._fetch_max_bytes = fetch_max_bytes
        self._offset_bytes: float = OFFSET_BYTES_GUESS
        self._short_end: int | None = None
        """The log end offset in the last response, if the log ends before the end of the range."""
        self._under_way: concurrent.futures.Future[memoryview] | None = None
        self._fetch_ahead()

    def __iter__(self) -> Iterator[memoryview]:
        return self

    def __next__(self) -> memoryview:
        if self._next_offset >= self._end_offset:
            raise StopIteration
        under_way, self._under_way = self._under_way, None
        # After an error, no fetch is in flight: fetch again from the same offset.
        data = self._thread.wait(under_way or self._start())
        next_offset = self._end_of(data)
        self._offset_bytes = len(data) / (next_offset - self._next_offset)
        self._next_offset = next_offset
        self._fetch_ahead()
        return data

    def _fetch_ahead(self) -> None:
        if self._next_offset < self._end_offset:
            self._under_way = self._start()

    def _start(self) -> concurrent.futures.Future[memoryview]:
        return self._thread.start(self._fetch(self._next_offset))

    def _end_of(self, data: memoryview) -> int:
        """Return the offset after the last complete batch in `data`."""
        next_offset, _ = end_of_batches(data)
        if next_offset is None or next_offset <= self._next_offset:
            where = f"{self._tp} at offset {self._next_offset}"
            raise CorruptBatchError(f"{where}: the response has {len(data)} bytes, but no whole batch of the range")
        return next_offset

    async def _fetch(self, offset: int) -> memoryview:
        """Return the batches from `offset` on. Wait up to `default_api_timeout_ms` for missing records."""
        self._short_end = None
        try:
            return await self._cluster.retrying(
                lambda: self._try_fetch(offset),
                what=f"cannot read {self._tp} at offset {offset}",
                unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S,
            )
        except TimedOutError as error:
            if self._short_end is None:
                raise
            raise TimedOutError(
                f"{error}. The leader responds, but its log ends at offset {self._short_end}, before the end of the "
                f"range, {self._end_offset}. Request the end offset again (Admin.end_offsets): the topic may have "
                "been recreated, a leader may have lost records, or the range may be wrong"
            ) from None

    async def _try_fetch(self, offset: int) -> memoryview:
        self._short_end = None
        self._cluster.use_topics([self._tp.topic])
        leader = self._cluster.view.leader(self._tp)
        if leader is None:
            leader = (await self._cluster.refresh()).leader(self._tp)
        if leader is None:
            if self._cluster.view.is_refused(self._tp.topic):
                raise self._cluster.topic_error(self._tp.topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "read")
            known = self._cluster.view.partition_count(self._tp.topic)
            if known is None or self._tp.partition >= known:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._tp} does not exist")
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._tp} has no leader")
        size = self._fetch_bytes(offset)
        part = FetchPartition(partition=self._tp.partition, fetch_offset=offset, partition_max_bytes=size)
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            topics=[FetchTopic(topic=self._tp.topic, partitions=[part])],
        )
        pacing = RequestBackoff(self._cluster.backoff.max_ms / 1000)
        now_s = self._cluster.clock.monotonic
        while True:
            sent_s = now_s()
            response: FetchResponse = await self._cluster.send(leader, request, version_max=FETCH_VERSION_MAX)
            found = self._answer(response, offset)
            if found.records:
                return memoryview(found.records)
            if 2_000 * (now_s() - sent_s) >= MAX_WAIT_MS:
                pacing.note_progress()
            else:  # pause if the broker returns an empty response without waiting for new records
                pacing.note_futile(now_s())
                await asyncio.sleep(pacing.wait_s(now_s()))
            # Remember a short log only after an empty response: a leader that throttles the client also returns no
            # records.
            self._short_end = found.high_watermark if found.high_watermark < self._end_offset else None

    def _fetch_bytes(self, offset: int) -> int:
        """Return the number of bytes to fetch: a little more than the estimated rest of the range."""
        likely = (self._end_offset - offset) * self._offset_bytes * 1.25
        return min(self._fetch_max_bytes, max(FETCH_BYTES_MIN, int(likely)))

    def _answer(self, response: FetchResponse, offset: int) -> PartitionData:
        for topic in response.responses:
            for each in topic.partitions:
                if (topic.topic, each.partition_index) != self._tp:
                    continue
                if each.error_code:
                    error = ApiError(each.error_code, subject=f"{self._tp} at offset {offset}")
                    raise self._cluster.refused(error, Need("read", "topic", self._tp.topic))
                return each
        raise ApiError(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._tp}: the response is empty")

    def close(self) -> None:
        """Cancel the fetch in flight, and close the connection unless it belongs to a `RangeSource`.

        Further calls do nothing.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.cancel()
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
