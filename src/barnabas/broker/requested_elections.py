"""Runs the preferred and unclean leader elections that administrators request (ElectLeaders, KIP-460).

No broker can make another broker the leader of a third broker's partition. A current leader transfers its own
leadership, and the first candidate claims a partition without a leader. So the broker that receives a request forwards
it to these brokers, over the inter-broker listener.

Used from the event loop's thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import closing

from barnabas.broker.controlled_shutdown import ControlledShutdown
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_image import MetadataImage, next_state
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.topics import Topics
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.net.client_connection import ClientConnection
from barnabas.protocol.messages.elect_leaders import (
    UNCLEAN_ELECTION,
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from barnabas.replication.leader_election import candidacy, transfer_leadership

LOOK_S = 0.02
"""The interval in seconds between checks whether the metadata image contains another broker's change."""
KNOWN_S = 5.0
"""The maximum wait until the metadata image contains another broker's change, in seconds."""

Outcome = ApiError | None
Connect = Callable[[int], Awaitable[ClientConnection]]
"""Connects to the inter-broker listener of the broker with this id."""


class RequestedElections:
    """Runs the leader elections that clients and other brokers request."""

    def __init__(self, topics: Topics, broker_id: int, connect: Connect, scheduler: CooperativeScheduler) -> None:
        self._topics = topics
        self._broker_id = broker_id
        self._connect = connect
        self._scheduler = scheduler

    def all(self) -> list[TopicPartition]:
        """Return all partitions of the cluster."""
        topics = self._topics.image.topics.values()
        return [TopicPartition(topic.name, n) for topic in topics for n in range(len(topic.partitions))]

    async def elect(self, wanted: Iterable[TopicPartition], kind: int) -> dict[TopicPartition, Outcome]:
        """Elect leaders of partitions, on this broker and on other brokers. Return an error or None for each partition.

        :param kind: PREFERRED_ELECTION or UNCLEAN_ELECTION.
        """
        outcomes: dict[TopicPartition, Outcome] = {}
        by_broker: dict[int, list[TopicPartition]] = {}
        async for where in self._scheduler.each(wanted):
            try:
                by_broker.setdefault(self._who_can(where, kind), []).append(where)
            except ApiError as error:
                outcomes[where] = error
        for broker_id, some in by_broker.items():
            if broker_id == self._broker_id:
                outcomes |= await self.elect_here(some, kind)
            else:
                outcomes |= await self._ask(broker_id, some, kind)
        return outcomes

    async def elect_here(self, wanted: Iterable[TopicPartition], kind: int) -> dict[TopicPartition, Outcome]:
        """Run elections on this broker: transfer partitions that it leads, or claim partitions without a leader."""
        outcomes: dict[TopicPartition, Outcome] = {}
        own = []
        async for where in self._scheduler.each(wanted):
            try:
                broker_id = self._who_can(where, kind)
            except ApiError as error:
                outcomes[where] = error
                continue
            if broker_id == self._broker_id:
                own.append(where)
            else:
                message = f"{where}: broker {broker_id} must run this election"
                outcomes[where] = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        try:
            await (self._claim(own) if kind == UNCLEAN_ELECTION else self._hand_on(own))
        except BarnabasError as error:
            return outcomes | dict.fromkeys(own, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        async for where in self._scheduler.each(own):
            outcomes[where] = self._why_not(where, kind)
        return outcomes

    # -- the broker that runs an election ---------------------------------------------------------------------

    def _who_can(self, where: TopicPartition, kind: int) -> int:
        """Return the broker that can run the requested election of a partition.

        :raises ApiError: no broker can run the election, or the election is not needed.
        """
        image = self._topics.image
        info = image.partition(where)
        if info is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {where} does not exist")
        return (
            _first_candidate(where, info, image)
            if kind == UNCLEAN_ELECTION
            else _transferring_broker(where, info, image)
        )

    def _why_not(self, where: TopicPartition, kind: int) -> Outcome:
        info = self._topics.image.partition(where)
        if kind == UNCLEAN_ELECTION:
            is_done, code = info is not None and info.state.leader == self._broker_id, _NO_ELIGIBLE
        else:
            is_done, code = info is not None and info.state.leader == info.replicas[0], _NO_PREFERRED
        return None if is_done else ApiError(code, f"{where}: the requested leader cannot become leader now")

    # -- elections on this broker -------------------------------------------------------------------------------

    async def _hand_on(self, own: Iterable[TopicPartition]) -> None:
        image, changes = self._topics.image, dict[LeaderReplica, StateChange]()
        for where in own:
            info = image.partition(where)
            replica = self._topics.replicas.get(where)
            if (
                info is None
                or not isinstance(replica, LeaderReplica)
                or replica.leader_epoch != info.state.leader_epoch
            ):
                continue
            leaving = {each for each in image.brokers if not image.is_eligible(each)}
            state = transfer_leadership(info.state, info.replicas, image.brokers.keys(), leaving)
            if state is not None and state.leader == info.replicas[0]:
                changes[replica] = next_state(where, image.topics[where.topic], state)
        if changes:
            await ControlledShutdown(self._topics, self._broker_id).transfer(changes)

    async def _claim(self, own: list[TopicPartition]) -> None:
        if own:
            await self._topics.elect_uncleanly(own)

    # -- elections on other brokers -------------------------------------------------------------------------------

    async def _ask(self, broker_id: int, some: list[TopicPartition], kind: int) -> Mapping[TopicPartition, Outcome]:
        by_topic: dict[str, list[int]] = {}
        for where in some:
            by_topic.setdefault(where.topic, []).append(where.partition)
        asked = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic.items()]
        try:
            with closing(await self._connect(broker_id)) as connection:
                response: ElectLeadersResponse = await connection.send(
                    ElectLeadersRequest(election_type=kind, topic_partitions=asked)
                )
        except BarnabasError as error:
            return dict.fromkeys(some, ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id}: {error}"))
        outcomes: dict[TopicPartition, Outcome] = {
            TopicPartition(topic.topic, each.partition_id): (
                ApiError(each.error_code, each.error_message or "") if each.error_code else None
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        }
        await self._until_known([where for where, outcome in outcomes.items() if outcome is None], broker_id, kind)
        return outcomes

    async def _until_known(self, elected: list[TopicPartition], broker_id: int, kind: int) -> None:
        """Wait until the metadata image of this broker contains the new leaders."""

        def is_known(where: TopicPartition) -> bool:
            info = self._topics.image.partition(where)
            return info is None or (info.state.leader == broker_id) == (kind == UNCLEAN_ELECTION)

        for _ in range(round(KNOWN_S / LOOK_S)):
            if all(map(is_known, elected)):
                return
            await asyncio.sleep(LOOK_S)


_NO_PREFERRED = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
_NO_ELIGIBLE = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def _transferring_broker(where: TopicPartition, info: PartitionInfo, image: MetadataImage) -> int:
    """Return the leader that can transfer its leadership to the preferred replica.

    :raises ApiError: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE.
    """
    preferred, state = info.replicas[0], info.state
    if state.leader == preferred and preferred in image.brokers:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{where} is led by its preferred replica")
    if preferred not in state.isr or not image.is_eligible(preferred) or state.leader not in image.brokers:
        message = f"{where}: the preferred replica on broker {preferred} is offline or not in sync"
        raise ApiError(_NO_PREFERRED, message)
    return state.leader


def _first_candidate(where: TopicPartition, info: PartitionInfo, image: MetadataImage) -> int:
    """Return the first candidate for the leadership of a partition without a leader.

    :raises ApiError: ELECTION_NOT_NEEDED, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    live = image.brokers.keys()
    if info.state.leader in live:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{where} is led by broker {info.state.leader}")
    for each in info.replicas:
        found = candidacy(
            each,
            info.replicas,
            info.state,
            live,
            is_new_incarnation=False,
            is_unclean_allowed=True,
            adding=info.adding,
        )
        if found is not None and not found.rank:
            return each
    raise ApiError(_NO_ELIGIBLE, f"{where}: all replicas are offline: brokers {list(info.replicas)}")
