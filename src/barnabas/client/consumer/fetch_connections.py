"""Sends the fetches that the fetcher plans, and passes on the responses. Runs on the event loop.

The callback that handles a response also sends the next fetch, in the same iteration of the loop, because any delay
between two fetches adds to the latency of records.

- `FetchSession` is the client's side of a fetch session (KIP-227): a request contains only the partitions whose fetch
  offset has changed, and a response only the changed partitions. `barnabas.broker.handlers.fetch` is the broker's side.
- `FetchTemplates` encodes and decodes the usual case in one step: a request that changes one partition, and a response
  with records of one partition. The general codec handles all other messages.
- `FetchConnections` has up to `FETCHES_MAX` connections to each broker. Each connection has at most one fetch in
  flight.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from barnabas.client.cluster import FETCH_VERSION_MAX, Channel, Cluster
from barnabas.client.consumer.fetcher import FETCHES_MAX, Fetch, SinglePartitionFetch
from barnabas.client.consumer.state import ConsumerState
from barnabas.errors import ApiError, BarnabasError, ErrorCode, MalformedMessageError
from barnabas.model import FINAL_SESSION_EPOCH, INITIAL_SESSION_EPOCH, NO_FETCH_SESSION, next_session_epoch
from barnabas.net.client_connection import RequestBackoff
from barnabas.protocol.codec import Buffer, EncodedRequest, ResponseTemplateWithRecords, template_encoder
from barnabas.protocol.compiler import read_uvarint
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

log = logging.getLogger(__name__)

SESSIONS_SINCE = 7
"""The first version of Fetch with fetch sessions."""


class FetchSession:
    """The fetch session of one connection. Each request is sent after the response to the previous one."""

    def __init__(self) -> None:
        self._id = NO_FETCH_SESSION
        self._epoch = INITIAL_SESSION_EPOCH
        self._known: dict[tuple[str, int], FetchPartition] = {}
        """The partitions of the session at the broker, provided that the broker has received the last request."""

    @property
    def is_open(self) -> bool:
        """Return whether there is a fetch session. In a session, the broker decides on the order of the partitions."""
        return self._epoch != INITIAL_SESSION_EPOCH

    def incremental_request(self, request: FetchRequest) -> FetchRequest:
        """Return `request` without the partitions that the broker already remembers unchanged."""
        wanted = {(topic.topic, part.partition): part for topic in request.topics for part in topic.partitions}
        known, self._known = self._known, wanted
        if not self.is_open:
            return self._said(request, request.topics)
        said = self._said(request, _changed(request.topics, known))
        if known.keys() != wanted.keys():
            said.forgotten_topics_data = _forgotten(known, wanted)
        return said

    def continue_with(self, topic: str, part: FetchPartition) -> tuple[int, int] | None:
        """Record a request that changes one partition and otherwise equals the previous request.

        :return: the session id and epoch of the request, or None if there is no session and the request must contain
            all partitions.
        """
        if not self.is_open:
            return None
        self._known[topic, part.partition] = part
        return self._id, self._epoch

    def _said(self, request: FetchRequest, topics: list[FetchTopic]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=topics,
            rack_id=request.rack_id,
        )

    def on_response(self, response: FetchResponse | SinglePartitionFetch) -> None:
        """Update the session after a response without an error."""
        if response.session_id == NO_FETCH_SESSION:
            # no fetch session: the broker's session cache is full
            self._id, self._epoch = NO_FETCH_SESSION, INITIAL_SESSION_EPOCH
        else:
            self._id = response.session_id
            self._epoch = next_session_epoch(self._epoch)

    def closing_request(self) -> FetchRequest | None:
        """Return the request that closes the session at the broker, or None if there is no session."""
        if self._id == NO_FETCH_SESSION:
            return None
        return FetchRequest(
            max_wait_ms=0, min_bytes=0, session_id=self._id, session_epoch=FINAL_SESSION_EPOCH, topics=[]
        )

    def reset(self) -> None:
        """Start a new session with the next request, because the broker may not have received the last request."""
        self._epoch = INITIAL_SESSION_EPOCH


def _changed(topics: list[FetchTopic], known: dict[tuple[str, int], FetchPartition]) -> list[FetchTopic]:
    changed: list[FetchTopic] = []
    for topic in topics:
        name = topic.topic
        parts: list[FetchPartition] = [
            part
            for part in topic.partitions
            # A comparison by identity suffices for most partitions: they are the same objects as in the previous
            # request.
            if (before := known.get((name, part.partition))) is not part and not _is_same(before, part)
        ]
        if parts:
            changed.append(FetchTopic(topic=topic.topic, partitions=parts))
    return changed


def _is_same(before: FetchPartition | None, part: FetchPartition) -> bool:
    return (
        before is not None
        and before.fetch_offset == part.fetch_offset
        and before.partition_max_bytes == part.partition_max_bytes
    )


def _forgotten(
    known: dict[tuple[str, int], FetchPartition], wanted: dict[tuple[str, int], FetchPartition]
) -> list[ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(known.keys() - wanted.keys()):
        topics.setdefault(topic, []).append(partition)
    return [ForgottenTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


PATTERNS_MAX = 64
"""The maximum number of templates of one connection. The number is limited because creating a template takes as long as
ten requests.
"""

_NAME_AT = 4 + 4 + 2 + 4 + 4
_NAME_AT_FLEXIBLE = 4 + 1 + 4 + 2 + 4 + 1
"""The position of the topic name's length in a flexible response with one topic. It follows the correlation id, the
tagged fields of the header, the throttle time, the error code, the session id and the number of topics.
"""

_INT16 = struct.Struct(">h")


class FetchTemplates:
    """The templates of one connection.

    :param version: the Fetch version of all requests.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._flexible = message_of(FetchResponse).flexible(version)
        self._packers: dict[str, Callable[..., bytes]] = {}
        self._readers: dict[bytes, _TopicReader] = {}
        """The reader of each topic, by the encoded name of the topic."""
        self._last: _TopicReader | None = None
        """The reader of the last response. Most consumers read one topic."""

    def request(
        self, whole: FetchRequest, session_id: int, session_epoch: int, topic: str, part: FetchPartition
    ) -> EncodedRequest | None:
        """Return the next request of a session, which changes one partition, or None if the maximum number of templates
        is reached.

        :param whole: the request with all partitions. All requests have the same `min_bytes` and rack.
        """
        pack = self._packers.get(topic)
        if pack is None:
            if len(self._packers) == PATTERNS_MAX:
                return None
            pack = self._packers[topic] = _packer(whole, topic, self.version)
        body = pack(
            whole.max_wait_ms,
            whole.max_bytes,
            session_id,
            session_epoch,
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
        )
        return EncodedRequest(FetchRequest, body, self.read, whole.max_bytes)

    def learn(self, response: FetchResponse) -> None:
        """Create a template from a decoded response of the usual form, unless the topic already has a template."""
        if response.error_code or response.throttle_time_ms or len(response.responses) != 1:
            return
        (topic,) = response.responses
        name = topic.topic.encode()
        if name in self._readers or len(self._readers) == PATTERNS_MAX or len(topic.partitions) != 1:
            return
        (part,) = topic.partitions
        # Lists of aborted transactions vary, so no template matches responses with such a list.
        if part.error_code or part.preferred_read_replica >= 0 or part.aborted_transactions or not part.records:
            return
        self._last = self._readers[name] = _TopicReader(topic.topic, _reader(response, self.version))

    def read(self, frame: Buffer) -> SinglePartitionFetch | None:
        """Return the decoded response, or None if the general codec must decode it."""
        last = self._last
        if last is None:
            return None
        answer = last.read(frame)
        if answer is None:
            other = self._readers.get(self._name(frame))
            if other is not None and other is not last and (answer := other.read(frame)) is not None:
                self._last = other
        return answer

    def _name(self, frame: Buffer) -> bytes:
        """Return the topic's name in a response with one topic. For any other frame, the result is meaningless bytes,
        which match no template.
        """
        try:
            if self._flexible:
                size, begin = read_uvarint(frame, _NAME_AT_FLEXIBLE)
                return bytes(frame[begin : begin + size - 1])
            (size,) = _INT16.unpack_from(frame, _NAME_AT)
        except (
            IndexError,
            struct.error,
            MalformedMessageError,
        ):  # The frame is short or has an error, so the position contains other data.
            return b""
        begin = _NAME_AT + _INT16.size
        return bytes(frame[begin : begin + size])


class _TopicReader:
    """Reads the responses of one topic."""

    __slots__ = ("_reader", "_topic")

    def __init__(self, topic: str, reader: ResponseTemplateWithRecords) -> None:
        self._topic = topic
        self._reader = reader

    def read(self, frame: Buffer) -> SinglePartitionFetch | None:
        """Return the decoded response, or None if it does not match the template."""
        found = self._reader.read(frame)
        if found is None:
            return None
        (session_id, partition, high_watermark, *_), records = found
        return SinglePartitionFetch(session_id, self._topic, partition, high_watermark, records)


def _packer(whole: FetchRequest, topic: str, version: int) -> Callable[..., bytes]:
    def request_with(
        max_wait_ms: int, max_bytes: int, session_id: int, epoch: int, partition: int, offset: int, part_bytes: int
    ) -> FetchRequest:
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=part_bytes)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=whole.min_bytes,
            max_bytes=max_bytes,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=topic, partitions=[part])],
            rack_id=whole.rack_id,
        )

    return template_encoder(request_with, 7, version)


def _reader(response: FetchResponse, version: int) -> ResponseTemplateWithRecords:
    (topic,) = response.responses
    (part,) = topic.partitions

    def answer_with(
        records: bytes, session_id: int, partition: int, high_watermark: int, last_stable_offset: int, log_start: int
    ) -> FetchResponse:
        other = replace(
            part,
            partition_index=partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start,
            records=records,
        )
        return replace(response, session_id=session_id, responses=[replace(topic, partitions=[other])])

    return ResponseTemplateWithRecords(answer_with, 5, version)


Answer = FetchResponse | SinglePartitionFetch

SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchConnections:
    """All fetches of a consumer.

    :param spawn: runs a coroutine in the background.
    :param on_fault: called with an unexpected error.
    :param answered: called after each response with the guard held. A response may have made positions of partitions
        invalid.
    """

    def __init__(
        self,
        state: ConsumerState,
        cluster: Cluster,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_fault: Callable[[BaseException], object],
        answered: Callable[[], object],
    ) -> None:
        self.state = state
        self.guard = state.guard
        self.fetcher = state.fetcher
        self.cluster = cluster
        self.spawn = spawn
        self.on_fault = on_fault
        self.answered = answered
        self.timeout_s = (state.config.request_timeout_ms + state.config.fetch_max_wait_ms) / 1000
        self.closed = False
        self._connections: dict[int, list[_FetchConnection]] = {}

    def wake(self, node_id: int) -> None:
        """Send a fetch on an idle connection to the broker, if there is something to fetch."""
        connections = self._connections.setdefault(node_id, [])
        for connection in connections:
            if not connection.busy:
                connection.advance()
                return
        if len(connections) < FETCHES_MAX:
            connections.append(_FetchConnection(self, node_id, f"fetch-{len(connections)}"))
            connections[-1].advance()

    def wake_others(self, than_node_id: int) -> None:
        """Wake the connections to brokers that waited for buffer space, or that the consumer now reads a partition
        from.
        """
        with self.guard.lock:
            node_ids = dict.fromkeys((*self.fetcher.deferred_nodes, *self.fetcher.sources(self.cluster.view)))
        for node_id in node_ids:
            if node_id != than_node_id:
                self.wake(node_id)

    @property
    def is_backing_off(self) -> bool:
        """Return whether a connection to the broker pauses after an error."""
        return any(each.pauses for connections in self._connections.values() for each in connections)

    def close(self) -> None:
        """Send no more fetches, and close the fetch sessions at the brokers."""
        self.closed = True
        for connections in self._connections.values():
            for connection in connections:
                connection.close()


class _FetchConnection:
    """A connection to one broker with at most one fetch in flight."""

    def __init__(self, all_fetches: FetchConnections, node_id: int, name: str) -> None:
        self.busy = False
        """True during a fetch, or during the pause after an error."""
        self._all = all_fetches
        self._node_id = node_id
        self._name = name
        self._session = FetchSession()
        self._view = all_fetches.cluster.view
        """The cluster view at the time of the last plan."""
        self._templates: FetchTemplates | None = None
        """The templates of this connection, or None before their first use."""
        self._failures = 0
        self._session_was_lost = False
        self._pacing = RequestBackoff(all_fetches.cluster.backoff.max_ms / 1000)
        self._pause: asyncio.TimerHandle | None = None

    def advance(self) -> None:
        """Send the next fetch, if there is something to fetch and space in the buffer."""
        self._pause = None
        try:
            with self._all.guard.lock:
                fetch = self._plan()
            channel = self._submit_next(fetch)
            if channel is not None:
                channel.flush()
        except Exception as unforeseen:  # noqa: BLE001 - the caller, if any, is not responsible for this error
            self._all.on_fault(unforeseen)

    @property
    def pauses(self) -> bool:
        """Return whether the connection is pausing before the next fetch."""
        return self._pause is not None

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        request = self._session.closing_request()
        # Use the broker's shared connection: on this connection, the request would wait behind the fetch in flight.
        channel = self._all.cluster.open_channel(self._node_id)
        if request is None or channel is None:
            return
        try:
            channel.submit(request, _ignore, version=_version(channel))
        except BarnabasError as error:
            log.debug("cannot close the fetch session with broker %d: %s", self._node_id, error)
        else:
            channel.flush()

    def _plan(self, answered: Fetch | None = None) -> Fetch | None:
        """Return the next fetch. It may be the last fetch object with new offsets. The caller must hold the guard."""
        fetcher = self._all.fetcher
        self._view = self._all.cluster.view
        if answered is not None and self._session.is_open and fetcher.repeat(answered, self._view):
            return answered
        return fetcher.next_fetch(self._node_id, self._view)

    def _submit_next(self, fetch: Fetch | None) -> Channel | None:
        """Queue the request of `fetch`, unless `fetch` is None. Return the connection to flush, or None."""
        self.busy = fetch is not None
        if fetch is None or self._all.closed:
            return None
        channel = self._all.cluster.open_channel(self._node_id, self._name)
        if channel is None:
            self._all.spawn(self._connect(fetch))
        else:
            self._submit(channel, fetch)
        return channel

    async def _connect(self, fetch: Fetch) -> None:
        try:
            channel = await self._all.cluster.channel_to(self._node_id, self._name)
        except BarnabasError as error:
            self._failed(fetch, error)
        else:
            self._submit(channel, fetch)
            channel.flush()

    def _submit(self, channel: Channel, fetch: Fetch) -> None:
        try:
            version = _version(channel)
            request = self._request(fetch, version)
            answered = partial(self._answered, fetch, self._all.state.now_s())
            channel.submit(request, answered, version=version, timeout_s=self._all.timeout_s)
        except BarnabasError as error:
            self._failed(fetch, error)

    def _request(self, fetch: Fetch, version: int) -> FetchRequest | EncodedRequest:
        """Return the request of a fetch, from a template if possible."""
        if version < SESSIONS_SINCE:
            return fetch.request
        if fetch.changed is not None and len(fetch.changed) == 1:
            (said,) = fetch.changed
            topic = said.state.tp.topic
            if (session := self._session.continue_with(topic, said.part)) is not None:
                if self._templates is None or self._templates.version != version:
                    self._templates = FetchTemplates(version)
                packed = self._templates.request(fetch.request, *session, topic, said.part)
                if packed is not None:
                    return packed
        return self._session.incremental_request(fetch.request)

    def _answered(self, fetch: Fetch, sent_s: float, response: Answer, error: BarnabasError | None) -> None:
        try:
            if error is None:
                state = self._all.state
                state.metrics.fetched(self._node_id, state.now_s() - sent_s)
                self._take(fetch, response, sent_s)
            else:
                self._failed(fetch, error)
        except Exception as unforeseen:  # noqa: BLE001 - no caller would receive the error of a callback
            self._all.on_fault(unforeseen)

    def _take(self, fetch: Fetch, response: Answer, sent_s: float) -> None:
        fetches = self._all
        try:
            with fetches.guard.lock:
                kept_count = fetches.fetcher.kept_count
                stale = fetches.fetcher.on_response(fetch, response)
                self._session.on_response(response)
                wait_s = self._pace(sent_s, has_records=fetches.fetcher.kept_count > kept_count)
                # Other connections may wait for the freed space, or their brokers may now lead a partition of this
                # fetch.
                others = bool(fetches.fetcher.deferred_nodes) or self._view is not fetches.cluster.view
                next_fetch = None if stale or others or wait_s else self._plan(fetch)
                fetches.answered()
        except ApiError as error:
            self._failed(fetch, error)
            return
        if type(response) is FetchResponse:
            if response.throttle_time_ms:
                fetches.state.metrics.throttle_ms.add(response.throttle_time_ms)
            if self._templates is not None:
                self._templates.learn(response)
        if stale or others:
            self._wake_application()
        if stale:
            self._wait_after_trouble()
            return
        self._failures, self._session_was_lost = 0, False
        if wait_s:
            self._wake_application()
            fetches.wake_others(self._node_id)
            self._wait(wait_s)
            return
        if others:
            fetches.wake_others(self._node_id)
            self.advance()
            return
        channel = self._submit_next(next_fetch)
        if channel is not None:
            channel.flush()
        # Wake the application last. A wake-up takes a system call, and the woken thread then competes for the
        # interpreter lock; both would delay the next fetch.
        self._wake_application()

    def _pace(self, sent_s: float, *, has_records: bool) -> float:
        """Return the pause in seconds before the next fetch.

        A pause is needed only if the broker returned an empty response without waiting.
        """
        state = self._all.state
        now_s = state.now_s()
        if has_records or 2_000 * (now_s - sent_s) >= state.config.fetch_max_wait_ms:
            self._pacing.note_progress()
        else:
            self._pacing.note_futile(now_s)
        return self._pacing.wait_s(now_s)

    def _wake_application(self) -> None:
        with self._all.guard.lock:
            self._all.guard.wake_application()

    def _failed(self, fetch: Fetch, error: BarnabasError) -> None:
        fetches = self._all
        log.debug("fetch from broker %d failed: %s", self._node_id, error)
        self._session.reset()
        with fetches.guard.lock:
            fetches.fetcher.on_failure(fetch)
            fetches.answered()
        self._pacing.note_futile(fetches.state.now_s())
        is_lost = isinstance(error, ApiError) and error.code in SESSION_LOST
        if is_lost and not self._session_was_lost and not self._pacing.is_slow:
            self._session_was_lost = True
            fetches.wake_others(self._node_id)  # a partition of this fetch may have a new leader
            self.advance()
            return
        if not error.retriable:
            fetches.state.report_error(error)
        self._wait_after_trouble()

    def _wait_after_trouble(self) -> None:
        fetches = self._all
        self._failures += 1
        fetches.cluster.request_refresh(is_stale=True)
        asyncio.get_running_loop().call_soon(fetches.wake_others, self._node_id)
        self._wait(fetches.cluster.backoff.delay_s(self._failures))

    def _wait(self, pause_s: float) -> None:
        self.busy = True
        if not self._all.closed:
            self._pause = asyncio.get_running_loop().call_later(pause_s, self.advance)


def _version(channel: Channel) -> int:
    return min(channel.version_for(FetchRequest), FETCH_VERSION_MAX)


def _ignore(_response: FetchResponse, _error: BarnabasError | None) -> None:
    """Ignore the response to the request that closes a session."""
