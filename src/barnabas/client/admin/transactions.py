"""Transactions and the producers of partitions (KIP-664), as coroutines of the admin clients.

The coordinator of a transactional id is the broker that stores its state. Barnabas has no transactions, so its brokers
do not serve ListTransactions and DescribeTransactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.addresses import Address
from barnabas.client.admin.coordinators import KEYS_PER_REQUEST, find_coordinators
from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE_S, Cluster
from barnabas.client.offset_requests import ask_leaders, missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.find_coordinator import TRANSACTION_KEY
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states of Kafka in which a transaction is open."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list: its state under Kafka's name, for example `Ongoing` or `CompleteCommit`, the
    producer id, and the broker id of its coordinator.
    """

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int

    @property
    def is_open(self) -> bool:
        """Return whether the transactional id has a transaction that is not yet committed or aborted."""
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id.

    `start_ms` is the time at which the open transaction began, in ms since the epoch; None without an open transaction.
    `timeout_ms` is the time after which the coordinator aborts it. `partitions` are those of the open transaction; once
    it is decided, those that lack the commit or abort marker.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Return whether the transactional id has a transaction that is not yet committed or aborted."""
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """An idempotent or transactional producer for which the leader of a partition has state.

    `last_sequence`, `last_timestamp_ms`, `coordinator_epoch` and `transaction_start_offset` are None if there is none.
    `transaction_start_offset` is the first offset of the open transaction in the partition.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    coordinator_epoch: int | None
    transaction_start_offset: int | None


async def list_transactions(
    cluster: Cluster,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids of all brokers, in order.

    :raises UnsupportedVersionError: a broker does not serve the request, or is too old to filter by duration (Kafka
        3.8).
    """
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
    )

    async def attempt() -> list[TransactionListing]:
        await cluster.refresh()
        brokers = sorted(cluster.view.brokers)
        answers = await asyncio.gather(*(cluster.send(node_id, request) for node_id in brokers))
        return [
            listed for node_id, response in zip(brokers, answers, strict=True) for listed in _listed(node_id, response)
        ]

    found = await cluster.retrying(attempt, what="cannot list transactions")
    return sorted(found, key=lambda each: each.transactional_id)


def _listed(node_id: int, response: ListTransactionsResponse) -> Iterable[TransactionListing]:
    if response.error_code:
        raise ApiError(response.error_code, subject=f"list of transactions of broker {node_id}")
    return [
        TransactionListing(each.transactional_id, each.transaction_state, each.producer_id, node_id)
        for each in response.transaction_states
    ]


async def describe_transactions(
    cluster: Cluster, transactional_ids: Sequence[str]
) -> dict[str, TransactionDescription]:
    """Return the state of transactional ids, without those that do not exist.

    :raises ApiError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED and other errors.
    :raises UnsupportedVersionError: the brokers do not serve the request.
    """
    wanted = list(dict.fromkeys(transactional_ids))
    if not wanted:
        return {}

    async def attempt() -> dict[str, TransactionDescription]:
        (await cluster.any_channel()).version_for(DescribeTransactionsRequest)  # FindCoordinator may create a topic
        at_coordinator = await find_coordinators(cluster, wanted, TRANSACTION_KEY)
        answers = await asyncio.gather(
            *(
                _describe_at(cluster, address, ids[start : start + KEYS_PER_REQUEST])
                for address, ids in at_coordinator.items()
                for start in range(0, len(ids), KEYS_PER_REQUEST)
            )
        )
        return {each.transactional_id: each for part in answers for each in part}

    found = await cluster.retrying(
        attempt,
        what="cannot describe transactions",
        needs=(Need("describe", "transactional-id", wanted[0] if len(wanted) == 1 else "*"),),
    )
    return {name: found[name] for name in wanted if name in found}


async def _describe_at(cluster: Cluster, address: Address, ids: Sequence[str]) -> list[TransactionDescription]:
    channel = await cluster.connect(address, "coordinator")
    response: DescribeTransactionsResponse = await cluster.ask(
        channel, DescribeTransactionsRequest(transactional_ids=list(ids))
    )
    missing = set(ids)
    found = []
    for each in response.transaction_states:
        missing.discard(each.transactional_id)
        code = ErrorCode.of(each.error_code)
        if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        if each.error_code:
            raise ApiError(code, subject=f"transactional id {each.transactional_id!r}")
        found.append(_described(each))
    if missing:
        raise missing_in_response(f"transactional id {min(missing)!r}")
    return found


def _described(each: DescribedTransaction) -> TransactionDescription:
    start_ms = each.transaction_start_time_ms
    return TransactionDescription(
        each.transactional_id,
        each.transaction_state,
        each.producer_id,
        each.producer_epoch,
        each.transaction_timeout_ms,
        start_ms if each.transaction_state in OPEN_STATES and start_ms >= 0 else None,
        tuple(sorted(TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions)),
    )


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerDescription]]:
    """Return the producers for which the leaders of partitions have state, by producer id.

    :raises ApiError: a partition does not exist, READ on the topic is missing, and other errors.
    :raises UnsupportedVersionError: a broker is older than Kafka 2.8.
    """
    wanted = dict.fromkeys(partitions, 0)

    async def attempt() -> dict[TopicPartition, list[ProducerDescription]]:
        found: dict[TopicPartition, list[ProducerDescription]] = {}
        for response in await ask_leaders(cluster, wanted, _ask_producers, "read"):
            for topic in response.topics:
                for each in topic.partitions:
                    tp = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        error = ApiError(each.error_code, each.error_message or "", f"producers of {tp}")
                        raise cluster.refused(error, Need("read", "topic", tp.topic))
                    found[tp] = sorted(map(_producer, each.active_producers), key=lambda one: one.producer_id)
        if missing := [tp for tp in wanted if tp not in found]:
            raise missing_in_response(f"producers of {missing[0]}")
        return found

    if not wanted:
        return {}
    return await cluster.retrying(attempt, what="cannot describe producers", unknown_topic_s=UNKNOWN_TOPIC_PATIENCE_S)


async def _ask_producers(
    cluster: Cluster, node_id: int, part: Mapping[TopicPartition, int]
) -> DescribeProducersResponse:
    topics: dict[str, list[int]] = {}
    for tp in part:
        topics.setdefault(tp.topic, []).append(tp.partition)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    )
    response: DescribeProducersResponse = await cluster.send(node_id, request)
    return response


def _producer(each: ProducerState) -> ProducerDescription:
    def known(value: int) -> int | None:
        return value if value >= 0 else None

    return ProducerDescription(
        each.producer_id,
        each.producer_epoch,
        known(each.last_sequence),
        known(each.last_timestamp),
        known(each.coordinator_epoch),
        known(each.current_txn_start_offset),
    )
