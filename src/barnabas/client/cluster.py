"""The metadata of the cluster in a client, and its connections to the brokers.

- `ClusterView` is an immutable view of brokers, topics and leaders. A Metadata response replaces it.
- `TopicInterest` decides which topics a Metadata request names, and which of them it may create. No I/O. A topic that a
  call has used is refreshed until `metadata_max_idle_ms` after its last use. A held topic is refreshed as long as it is
  in the subscription or assignment. A request creates a topic only while a call or a record waits for it, or after a
  new subscription of a consumer that may create topics. So a deleted topic stays deleted until a producer sends to it.
- `Cluster` connects, finds leaders and coordinators, and retries. It runs on one event loop. A connection has an
  address and a purpose: responses arrive in the order of the requests, so a fetch that waits at the broker needs its
  own connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from barnabas import __version__
from barnabas.addresses import Address, host_ports
from barnabas.client.backoff import Backoff
from barnabas.client.config import ClientConfig
from barnabas.client.permissions import Need, with_permission
from barnabas.clock import Clock
from barnabas.errors import (
    ApiError,
    BarnabasError,
    ClosedError,
    DisconnectedError,
    ErrorCode,
    RetriableError,
    TimedOutError,
    reason_of,
)
from barnabas.metrics.rolling_sum import RollingSum
from barnabas.model import NO_LEADER_EPOCH, Node, TopicPartition
from barnabas.net.client_connection import dial
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.security.protocols import SecurityProtocol

if TYPE_CHECKING:
    from barnabas.protocol.messages.find_coordinator import FindCoordinatorResponse

log = logging.getLogger(__name__)
T = TypeVar("T")

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition according to the last Metadata response."""

    partition: int
    leader: int
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic according to the last Metadata response. A topic with an error has no partitions."""

    name: str
    topic_id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionView, ...] = ()
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The brokers, topics and partition leaders in one Metadata response.

    >>> ClusterView().leader(TopicPartition("clicks", 0)) is None
    True
    """

    brokers: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    _leaders: dict[TopicPartition, int | None] = field(init=False, default_factory=dict, repr=False, compare=False)
    """A cache for `leader`, because clients call `leader` for each partition of each request."""

    def leader(self, tp: TopicPartition) -> int | None:
        """Return the broker id of the leader of `tp`, or None if the leader is unknown."""
        try:
            return self._leaders[tp]
        except KeyError:
            leader = self._leaders[tp] = self._find_leader(tp)
            return leader

    def _find_leader(self, tp: TopicPartition) -> int | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        leader = topic.partitions[tp.partition].leader
        return leader if leader in self.brokers else None

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch of `tp`, or -1 if it is unknown."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return NO_LEADER_EPOCH
        return topic.partitions[tp.partition].leader_epoch

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, or None if the topic is unknown."""
        view = self.topics.get(topic)
        return len(view.partitions) if view is not None and view.partitions else None

    def is_refused(self, topic: str) -> bool:
        """Return whether the client lacks the permission to describe a topic."""
        view = self.topics.get(topic)
        return view is not None and view.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all known partitions of `topics`."""
        return [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in range(self.partition_count(topic) or 0)
        ]

    def limited_to(self, topics: Collection[str]) -> ClusterView:
        """Return a view with these topics only."""
        if all(name in topics for name in self.topics):
            return self
        return replace(self, topics={name: topic for name, topic in self.topics.items() if name in topics})

    def merged(self, response: MetadataResponse, *, all_topics: bool) -> ClusterView:
        """Return the view after a Metadata response.

        :param all_topics: True if the request was for all topics. A topic that is missing in the response then does not
            exist.
        """
        known = {} if all_topics else dict(self.topics)
        for topic in response.topics:
            if topic.name is None:
                continue
            before = self.topics.get(topic.name)
            if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE and before is not None and before.partitions:
                known[topic.name] = before  # the topic temporarily has no leader, so keep its partitions
            else:
                known[topic.name] = _not_older(_topic_view(topic), before)
        return replace(
            self,
            brokers={each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers},
            topics=known,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
        )


def _not_older(now: TopicView, before: TopicView | None) -> TopicView:
    """Return the view `now`, but keep each partition of `before` that has a later leader epoch: the broker that sent
    `now` may not know the latest leader. Otherwise the client would send requests to the former leader, which lacks
    later records and rejects their offsets (KIP-320). Epochs of a deleted topic with the same name are ignored.
    """
    if before is None or now.topic_id == ZERO_UUID or now.topic_id != before.topic_id:
        return now
    later = before.partitions
    partitions = tuple(
        later[each.partition]
        if each.partition < len(later) and each.leader_epoch < later[each.partition].leader_epoch
        else each
        for each in now.partitions
    )
    return replace(now, partitions=partitions)


def _topic_view(topic: MetadataResponseTopic) -> TopicView:
    assert topic.name is not None
    ordered = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    # The partitions are numbered from 0 without gaps; the index of a partition in the view is its number.
    whole = [each for place, each in enumerate(ordered) if each.partition_index == place]
    return TopicView(
        name=topic.name,
        topic_id=topic.topic_id,
        error=ErrorCode.of(topic.error_code),
        is_internal=topic.is_internal,
        partitions=tuple(
            PartitionView(
                partition=each.partition_index,
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replica_nodes),
                isr=tuple(each.isr_nodes),
                offline_replicas=tuple(each.offline_replicas),
            )
            for each in whole
        ),
    )


class ProducerTopics(Protocol):
    """The topics that a producer sends to."""

    def topics_to_create(self) -> set[str]:
        """Return the topics with records that were never sent, or no topics if the producer must not create topics."""
        ...

    def topics_in_use(self, since_s: float) -> set[str]:
        """Return the topics with unacknowledged records, or with a batch that was opened after `since_s`."""
        ...


class TopicsToRefresh(NamedTuple):
    """The topics of one metadata refresh."""

    known: set[str] | None
    """The topics that the request must not create, or None for all topics."""
    creatable: set[str]
    """The topics without known metadata, which the request may create."""


class TopicInterest:
    """The topics for which a client needs metadata.

    :param idle_s: the time in seconds for which the metadata of a topic is refreshed after its last use.
    :param sending: the topics of a producer, or None for another client.
    """

    def __init__(self, idle_s: float, sending: ProducerTopics | None = None) -> None:
        self._idle_s = idle_s
        self._sending = sending
        self._used_at_s: dict[str, float] = {}
        self._awaited: Counter[str] = Counter()
        """The number of calls that wait for a topic and may create it, by topic."""
        self._held: frozenset[str] | None = frozenset()
        """The topics of the subscription or assignment, or None for all topics."""
        self._not_yet_there: set[str] = set()
        """The topics that a Metadata request may create, because no Metadata response has contained them yet."""

    def use(self, topics: Iterable[str], now_s: float) -> None:
        """Refresh the metadata of these topics until `idle_s` seconds after their last use."""
        for topic in topics:
            self._used_at_s[topic] = now_s

    def hold(self, topics: Collection[str] | None, *, auto_creates: bool) -> None:
        """Refresh the metadata of these topics, or of all topics with None, until the next call of `hold`."""
        before = self._held
        self._held = None if topics is None else frozenset(topics)
        if self._held is None or not auto_creates:
            self._not_yet_there.clear()
            return
        self._not_yet_there &= self._held
        self._not_yet_there |= self._held - (before or frozenset())

    def wait_for(self, topic: str) -> None:
        """Record that a call waits for a topic, which a request may create, until `stop_waiting_for`."""
        self._awaited[topic] += 1

    def stop_waiting_for(self, topic: str) -> None:
        """Record that a call no longer waits for a topic."""
        self._awaited[topic] -= 1
        if not self._awaited[topic]:
            del self._awaited[topic]

    def wanted(self, view: ClusterView, now_s: float) -> TopicsToRefresh:
        """Return the topics to request in the next refresh."""
        self._not_yet_there = {topic for topic in self._not_yet_there if view.partition_count(topic) is None}
        may_create = {*self._awaited, *self._not_yet_there}
        if self._sending is not None:
            may_create |= self._sending.topics_to_create()
        creatable = {topic for topic in may_create if view.partition_count(topic) is None}
        names = self.names(now_s)
        return TopicsToRefresh(None if names is None else names - creatable, creatable)

    def names(self, now_s: float) -> set[str] | None:
        """Return the names of the topics that need metadata, or None for all topics."""
        since_s = now_s - self._idle_s
        self._used_at_s = {topic: at_s for topic, at_s in self._used_at_s.items() if at_s > since_s}
        if self._held is None:
            return None
        names = {*self._used_at_s, *self._held, *self._awaited}
        return names if self._sending is None else names | self._sending.topics_in_use(since_s)


CLOSED = "this client is closed; make a new one"

FOREVER_S: float = float("inf")

FIND_COORDINATOR_VERSION_MAX = 3
"""The last version of FindCoordinator with a single group in a request. A client has one group."""

ASKED_AGAIN_S_MAX = 0.2
"""The maximum pause in seconds between two Metadata requests while a call waits for a new leader.

One request costs a broker little, but thousands of clients may wait for the same leader.
"""

FETCH_VERSION_MAX = 12
PRODUCE_VERSION_MAX = 12
OFFSET_COMMIT_VERSION_MAX = 9
"""The last version of OffsetCommit that identifies topics by name. Later versions use topic ids (KIP-516)."""

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""The errors after which the client refreshes its metadata."""

OTHER_BROKER_S = 1.0
"""The time limit in seconds of a connection attempt to another broker, after the connected brokers returned stale
metadata. The limit is short: the other broker may be down, and the connected brokers may have newer metadata soon.
"""

UNKNOWN_TOPIC_PATIENCE_S = 2.0
"""The time in seconds for which a client that does not create topics retries an unknown topic. Another client may just
have created the topic.
"""

STALE_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Channel(Protocol):
    """A connection to one broker: the interface of `barnabas.net.client_connection.ClientConnection`."""

    @property
    def is_open(self) -> bool: ...
    @property
    def unsent_bytes(self) -> int: ...

    on_progress: Callable[[], None] | None

    def version_for(self, request: type[Any]) -> int: ...
    async def send(self, request: object, *, version: int | None = None, timeout_s: float = 30.0) -> Any: ...
    def send_soon(
        self, request: object, *, version: int | None = None, timeout_s: float = 30.0
    ) -> asyncio.Future[Any]: ...
    def submit(
        self,
        request: object,
        on_answer: Callable[[Any, BarnabasError | None], None] | None,
        *,
        version: int | None = None,
        timeout_s: float = 30.0,
    ) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


Dial = Callable[[str, int], Awaitable[Channel]]


class Cluster:
    """Sends requests to leaders, coordinators or any broker. All methods run on the event loop on which `dial`
    connects.

    :param dial: connects to (host, port).
    :param random: returns a number in [0, 1).
    :param sending: the topics of a producer, or None for another client.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        dial: Dial,
        clock: Clock,
        random: Callable[[], float],
        sending: ProducerTopics | None = None,
    ) -> None:
        self.view = ClusterView()
        self.clock = clock
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self.updated: list[Callable[[ClusterView], None]] = []
        """Functions to call on the loop after each change of `view`."""
        self.lost: list[Callable[[float, BarnabasError], None]] = []
        """Functions to call on the loop, with the value of `unreachable`, when no broker is reachable any more. The
        client counts a broker as reachable again when `view` changes.
        """
        self._config = config
        self._dial = dial
        self._random = random
        self.connections = RollingSum(clock)
        """The number of established connections over time."""
        self._channels: dict[tuple[str, int, str], Channel] = {}
        self._dialing: dict[tuple[str, int, str], asyncio.Lock] = {}
        self._coordinators: dict[str, Node] = {}
        self._asked: Address | None = None
        self._doubted: set[Address] = set()
        self._interest = TopicInterest(config.metadata_max_idle_ms / 1000, sending)
        self._refresh_requested = asyncio.Event()
        self._is_kept_fresh = False
        self._is_refreshing = False
        """True while a request of `refresh_forever` is in flight."""
        self._closed = False
        self.unreachable: tuple[float, BarnabasError] | None = None
        """The monotonic time in seconds since which no broker is reachable, with the reason; None if a broker is
        reachable.
        """

    # --- connections ------------------------------------------------------------------------------------

    async def connect(self, address: Address, purpose: str = "") -> Channel:
        """Return an open connection to `address`, or connect.

        :param purpose: the purpose of the connection. Each purpose has its own connections.
        :raises DisconnectedError: no broker listens at the address.
        :raises TimedOutError: the broker did not respond in time.
        """
        key = (*address, purpose)
        async with self._dialing.setdefault(key, asyncio.Lock()):
            if self._closed:
                raise ClosedError(CLOSED)
            channel = self._channels.get(key)
            if channel is None or not channel.is_open:
                channel = await self._dial(*address)
                if self._closed:  # the client was closed while this call waited
                    channel.close()
                    raise ClosedError(CLOSED)
                self._channels[key] = channel
                self.connections.add(1)
            return channel

    async def channel_to(self, node_id: int, purpose: str = "") -> Channel:
        """Return a connection to a broker by its id.

        :raises ApiError: LEADER_NOT_AVAILABLE: the metadata does not contain the broker.
        """
        node = self.view.brokers.get(node_id)
        if node is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not among the live brokers")
        return await self.connect((node.host, node.port), purpose)

    def open_channel(self, node_id: int, purpose: str = "") -> Channel | None:
        """Return the open connection to a broker, or None if there is none; see `channel_to`."""
        node = self.view.brokers.get(node_id)
        channel = None if node is None else self._channels.get((node.host, node.port, purpose))
        return channel if channel is not None and channel.is_open else None

    def open_channels(self) -> Iterator[Channel]:
        """Yield the open connections that have no special purpose."""
        for (_, _, purpose), channel in list(self._channels.items()):
            if channel.is_open and not purpose:
                yield channel

    async def ask(
        self, channel: Channel, request: object, *, version_max: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send a request in the latest version that both sides support, at most `version_max`."""
        version = channel.version_for(type(request))
        if version_max is not None:
            version = min(version, version_max)
        if timeout_s is None:
            timeout_s = self._config.request_timeout_ms / 1000
        return await channel.send(request, version=version, timeout_s=timeout_s)

    async def send(
        self,
        node_id: int,
        request: object,
        *,
        purpose: str = "",
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request to a broker by its id, and return the response. Does not retry."""
        channel = await self.channel_to(node_id, purpose)
        return await self.ask(channel, request, version_max=version_max, timeout_s=timeout_s)

    async def any_channel(self) -> Channel:
        """Return a connection to any broker: preferably an open connection, otherwise a new one to a known broker or a
        bootstrap address. A broker that returned stale metadata is tried last, because it may be disconnected from the
        cluster.
        """
        channel = await self._open_channel()
        if channel is not None:
            self._reached()
            return channel
        failure: DisconnectedError | TimedOutError | None = None
        for address in self._addresses():
            try:
                channel = await self.connect(address)
            except (DisconnectedError, TimedOutError) as error:
                failure = error
            else:
                self._reached()
                self._asked = address
                return channel
        names = host_ports(self._config.bootstrap_servers, ", ")
        unreachable = DisconnectedError(
            f"no broker at {names}: {failure}; is it running? (barnabas up)", failure.reason if failure else ""
        )
        if self.unreachable is None:
            self.unreachable = (self.clock.monotonic(), unreachable)
            log.warning("%s; retrying", unreachable)
            for listener in self.lost:
                listener(*self.unreachable)
        raise unreachable from failure

    def _reached(self) -> None:
        """Refresh the metadata, because a broker is reachable again. The new view notifies the components that `lost`
        has notified.
        """
        if self.unreachable is not None:
            self.unreachable = None
            self.request_refresh()

    def _addresses(self) -> list[Address]:
        """Return the known brokers in random order, and then the bootstrap addresses."""
        known = [(node.host, node.port) for node in self.view.brokers.values()]
        known.sort(key=lambda _: self._random())
        return list(dict.fromkeys((*known, *self._config.bootstrap_servers)))

    async def _open_channel(self) -> Channel | None:
        """Return an open connection. If all connected brokers returned stale metadata, connect to another broker."""
        found = {
            (host, port): channel
            for (host, port, purpose), channel in self._channels.items()
            if channel.is_open and not purpose
        }
        if not found:
            return None
        trusted = [address for address in found if address not in self._doubted]
        if trusted:
            self._asked = trusted[0]
            return found[self._asked]
        for address in self._addresses():
            if address not in self._doubted:
                self._asked = address
                try:
                    async with asyncio.timeout(OTHER_BROKER_S):
                        return await self.connect(address)
                except (DisconnectedError, TimedOutError, TimeoutError):
                    self._doubted.add(address)
                    break  # try one other broker per call, because the caller is waiting
        else:
            self._doubted.clear()
        # Use each connected broker in turn, so that requests are spread over brokers.
        self._asked = next((each for each in found if each != self._asked), next(iter(found)))
        return found[self._asked]

    def _doubt(self) -> None:
        """Prefer other brokers to the broker that sent the last Metadata response."""
        if self._asked is not None:
            self._doubted.add(self._asked)

    async def finish(self) -> None:
        """Close all connections. Called for a client that the application has not closed."""
        self.close()

    def close(self) -> None:
        self._closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    # --- metadata ---------------------------------------------------------------------------------------

    def use_topics(self, topics: Iterable[str]) -> None:
        """Keep these topics in `view` until `metadata_max_idle_ms` after their last use; do not create them."""
        self._interest.use(topics, self.clock.monotonic())

    def hold_topics(self, topics: Collection[str] | None, *, auto_creates: bool = False) -> None:
        """Keep these topics, or all topics with None, in `view` until the next call of `hold_topics`.

        :param auto_creates: True if a request may create the newly held topics that do not exist.
        """
        self._interest.hold(topics, auto_creates=auto_creates)

    async def refresh(self) -> ClusterView:
        """Refresh the metadata of all topics that need it. Does not retry.

        :raises DisconnectedError: no broker is reachable.
        """
        known, creatable = self._interest.wanted(self.view, self.clock.monotonic())
        # use a separate request, so that no other topic is created
        if creatable:
            await self._fetch_metadata(sorted(creatable), auto_creates=True)
        if known is None:
            return await self._fetch_metadata(None, auto_creates=False)
        if known or not creatable:
            await self._fetch_metadata(sorted(known), auto_creates=False)
        names = self._interest.names(self.clock.monotonic())
        if names is not None:
            self.view = self.view.limited_to(names)
        return self.view

    async def describe(self, topics: Iterable[str] | None) -> list[TopicView]:
        """Return the current description of `topics`, or of all topics. Creates no topic, and does not retry."""
        names = None if topics is None else sorted(set(topics))
        view = await self._fetch_metadata(names, auto_creates=False)
        wanted = sorted(view.topics) if names is None else names
        return [view.topics.get(name, TopicView(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) for name in wanted]

    async def _fetch_metadata(self, topics: list[str] | None, *, auto_creates: bool) -> ClusterView:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=auto_creates,
        )
        response: MetadataResponse = await self.ask(await self.any_channel(), request)
        self.view = self.view.merged(response, all_topics=topics is None)
        for listener in self.updated:
            listener(self.view)
        return self.view

    def request_refresh(self, *, is_stale: bool = False) -> None:
        """Make `refresh_forever` refresh the metadata soon.

        :param is_stale: True if the last response is outdated or lacks a leader. Another broker may have newer
            metadata.
        """
        if is_stale:
            self._doubt()
        self._refresh_requested.set()

    @property
    def will_refresh(self) -> bool:
        """Return whether a refresh is under way or about to begin."""
        return self._is_refreshing or self._refresh_requested.is_set()

    async def refresh_forever(self) -> None:
        """Refresh the metadata on request, and when it has expired; never returns."""
        attempt = 0
        max_age_s = self._config.metadata_max_age_ms / 1000
        self._is_kept_fresh = True
        while True:
            if not self._refresh_requested.is_set():
                attempt = 0
            try:
                async with asyncio.timeout(max_age_s):
                    await self._refresh_requested.wait()
            except TimeoutError:
                pass
            self._refresh_requested.clear()
            self._is_refreshing = True
            try:
                await self.refresh()
            except ClosedError:
                return
            except BarnabasError as error:
                log.debug("cannot refresh the metadata: %s", reason_of(error))
                self._refresh_requested.set()
                attempt += 1
                delay_s = self.backoff.delay_s(attempt)
            else:
                delay_s = min(self.backoff.delay_s(attempt), ASKED_AGAIN_S_MAX)
                attempt += 1
            finally:
                self._is_refreshing = False
            await asyncio.sleep(delay_s)

    async def topic(self, name: str, *, timeout_s: float, auto_creates: bool = False) -> TopicView:
        """Return a topic with its partitions; wait for its creation if necessary.

        :param timeout_s: the timeout in seconds.
        :param auto_creates: True if the request may create the topic.
        :raises ApiError: the topic does not exist or is not accessible.
        :raises TimedOutError: the topic did not appear in time.
        """

        async def attempt() -> TopicView:
            view = self.view.topics.get(name)
            if view is None or not view.partitions:
                view = (await self.refresh()).topics.get(name)
            if view is None or view.error is not ErrorCode.NONE or not view.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if view is None else view.error
                code = code if code is not ErrorCode.NONE else ErrorCode.LEADER_NOT_AVAILABLE
                raise self.topic_error(name, code)
            return view

        self.use_topics([name])
        if not auto_creates:
            return await self.retrying(
                attempt, timeout_s=timeout_s, what=f"cannot get the partitions of topic {name!r}"
            )
        self._interest.wait_for(name)
        try:
            return await self.retrying(
                attempt, timeout_s=timeout_s, what=f"cannot get the partitions of topic {name!r}"
            )
        finally:
            self._interest.stop_waiting_for(name)

    def topic_error(self, name: str, code: ErrorCode, operations: str = "") -> ApiError:
        """Return the error of a topic in the metadata, with the next step.

        :param operations: the operations on the topic that are wanted; empty for those of this kind of client.
        """
        error = ApiError.about(code, f"topic {name!r}", self._advice(code))
        return self.refused(error, Need(operations or self._config.topic_operations, "topic", name))

    def need_of_group(self, group: str) -> Need:
        """Return the permission that this client needs for the offsets of a group."""
        return Need(self._config.group_operations, "group", group)

    def refused(self, error: ApiError, *needs: Need) -> ApiError:
        """Return the error of a request with the missing permission, if a permission is missing."""
        return with_permission(error, self._config.principal, *needs)

    def _advice(self, code: ErrorCode) -> str:
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return " does not exist; create it: barnabas topic create"
        if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            return " is not a valid topic name: use at most 249 letters, digits, '.', '_' and '-'"
        return ""

    # --- coordinators -----------------------------------------------------------------------------------

    async def coordinator(self, group: str) -> Node:
        """Return the broker that coordinates `group`. Does not retry.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE and other errors.
        """
        node = self._coordinators.get(group)
        if node is not None:
            return node
        # Import the messages here: most calls of admin clients need no coordinator, and the import takes time.
        from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest  # noqa: PLC0415

        response: FindCoordinatorResponse = await self.ask(
            await self.any_channel(), FindCoordinatorRequest(key=group), version_max=FIND_COORDINATOR_VERSION_MAX
        )
        if response.error_code:
            subject = "" if response.error_message else f"coordinator of group {group!r}"
            raise ApiError(response.error_code, response.error_message or "", subject)
        node = self._coordinators[group] = Node(response.node_id, response.host, response.port)
        return node

    def forget_coordinator(self, group: str) -> None:
        """Discard the known coordinator of `group`, so that the next request looks it up again."""
        self._coordinators.pop(group, None)

    async def ask_coordinator(
        self,
        group: str,
        request: object,
        *,
        purpose: str = "coordinator",
        version_max: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request to the coordinator of `group`. Does not retry.

        After a lost connection, the next call looks up the coordinator again.
        """
        try:
            node = await self.coordinator(group)
            channel = await self.connect((node.host, node.port), purpose)
            return await self.ask(channel, request, version_max=version_max, timeout_s=timeout_s)
        except (DisconnectedError, TimedOutError):
            self.forget_coordinator(group)
            raise

    # --- patience ---------------------------------------------------------------------------------------

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        what: str,
        timeout_s: float | None = None,
        group: str = "",
        unknown_topic_s: float = FOREVER_S,
        needs: Sequence[Need] = (),
    ) -> T:
        """Run `attempt` until it succeeds, its error is not retriable, or the timeout expires.

        :param what: the beginning of the TimedOutError's message.
        :param timeout_s: the timeout in seconds; None means `default_api_timeout_ms`.
        :param group: the group whose coordinator is looked up again after coordinator errors.
        :param unknown_topic_s: the time in seconds for which an unknown topic is retried.
        :param needs: the permissions that the requests need, for the error of a missing permission.
        :raises TimedOutError: the timeout has expired; the message contains the last error.
        """
        timeout_s = self._config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        started_s = self.clock.monotonic()
        deadline_s = started_s + timeout_s
        tries = 0
        while True:
            remaining_s = deadline_s - self.clock.monotonic()
            try:
                async with asyncio.timeout(max(remaining_s, 0.001)):
                    return await attempt()
            except TimeoutError as error:
                if not isinstance(error, TimedOutError):
                    raise TimedOutError(f"{what}: no answer within {timeout_s:g} s") from None
                failure: BarnabasError = error
            except BarnabasError as error:
                failure = error
            unknown = isinstance(failure, ApiError) and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not failure.retriable or (unknown and self.clock.monotonic() - started_s >= unknown_topic_s):
                raise self.refused(failure, *needs) if isinstance(failure, ApiError) else failure
            await self._recover(failure, group, deadline_s)
            delay_s = self.backoff.delay_s(tries)
            tries += 1
            remaining_s = deadline_s - self.clock.monotonic()
            if delay_s >= remaining_s:
                # Shorten the last pause, so that a last attempt starts just before the timeout.
                delay_s = remaining_s / 2
            if delay_s < self._config.retry_backoff_ms / 4000:
                reason = failure.reason if isinstance(failure, RetriableError) else ""
                raise TimedOutError(f"{what} (tried for {timeout_s:g} s): {failure}", reason) from failure
            await asyncio.sleep(delay_s)

    async def _recover(self, failure: BarnabasError, group: str, deadline_s: float) -> None:
        """Look up the leaders or the coordinator again before the next attempt, if `failure` requires it."""
        if isinstance(failure, ApiError) and failure.code in STALE_COORDINATOR and group:
            self.forget_coordinator(group)
            self._doubt()
        stale = isinstance(failure, (DisconnectedError, TimedOutError)) or (
            isinstance(failure, ApiError) and failure.code in STALE_METADATA
        )
        if not stale:
            return
        if self._is_kept_fresh:
            self.request_refresh(is_stale=True)
            return
        self._doubt()
        try:
            async with asyncio.timeout(max(deadline_s - self.clock.monotonic(), 0.001)):
                await self.refresh()
        except (BarnabasError, TimeoutError) as error:
            # the next attempt fails with the same error and raises it
            log.debug("cannot refresh the metadata: %s", error)


def dial_with(config: ClientConfig) -> Dial:
    """Return a function that connects to (host, port) with the timeouts, client id and security of `config`.

    :raises ConfigurationError: a certificate file is not valid.
    """
    security = None
    if config.security_protocol is not SecurityProtocol.PLAINTEXT:
        # Imported here because most clients have no TLS, and start faster without the import.
        from barnabas.client.security import connection_security  # noqa: PLC0415

        security = connection_security(config)

    async def connect(host: str, port: int) -> Channel:
        return await dial(
            host,
            port,
            client_id=config.client_id,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            software_version=__version__,
            security=security,
        )

    return connect
