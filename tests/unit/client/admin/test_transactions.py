"""Transactions and producers, over a cluster that is a list of answers."""

from __future__ import annotations

import pytest

from barnabas.client.admin.transactions import (
    ProducerDescription,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.unit.client.test_admin_requests import ask, requests_of


def coordinators(**ports: int):
    found = [Coordinator(key=key, node_id=port - 1, host="b", port=port) for key, port in ports.items()]
    return {FindCoordinatorRequest: [FindCoordinatorResponse(coordinators=found)]}


def described(name: str, state: str = "Ongoing", start_ms: int = 5_000, code: ErrorCode = ErrorCode.NONE):
    return DescribedTransaction(
        error_code=code,
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=start_ms,
        producer_id=7,
        producer_epoch=2,
        topics=[TransactionTopic(topic="t", partitions=[1, 0])],
    )


def answer(*states: DescribedTransaction) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=list(states))


def test_transactions_of_all_brokers_are_listed_with_their_coordinator():
    def listed(name: str, state: str):
        each = ListedTransaction(transactional_id=name, producer_id=7, transaction_state=state)
        return [ListTransactionsResponse(error_code=0, transaction_states=[each])]

    sent = []
    script = {
        (0, ListTransactionsRequest): listed("z", "Ongoing"),
        (1, ListTransactionsRequest): listed("a", "CompleteCommit"),
    }
    found = ask(lambda cluster: list_transactions(cluster, ["Ongoing"], [7], longer_than_ms=10), script, sent)
    assert [(each.transactional_id, each.coordinator, each.is_open) for each in found] == [
        ("a", 1, False),
        ("z", 0, True),
    ]
    asked = [each for _, each in requests_of(sent, ListTransactionsRequest)]
    assert [(each.state_filters, each.producer_id_filters, each.duration_filter) for each in asked] == [
        (["Ongoing"], [7], 10)
    ] * 2


def test_coordinators_describe_their_transactions():
    sent = []
    script = {
        **coordinators(a=1, b=2, gone=2),
        (0, DescribeTransactionsRequest): [answer(described("a"))],
        (1, DescribeTransactionsRequest): [
            answer(
                described("b", "CompleteAbort"),
                described("gone", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            )
        ],
    }
    found = ask(lambda cluster: describe_transactions(cluster, ["b", "gone", "a"]), script, sent)
    assert list(found) == ["b", "a"]
    assert [(each.start_ms, each.is_open) for each in found.values()] == [(None, False), (5_000, True)]
    assert found["a"].partitions == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert [node for node, _ in requests_of(sent, DescribeTransactionsRequest)] == [0, 1]
    ((_, request),) = requests_of(sent, FindCoordinatorRequest)
    assert (request.key_type, request.coordinator_keys) == (1, ["b", "gone", "a"])


def test_moved_coordinator_is_found_again():
    moved = answer(described("a", code=ErrorCode.NOT_COORDINATOR))
    script = {**coordinators(a=1), DescribeTransactionsRequest: [moved, answer(described("a"))]}
    assert list(ask(lambda cluster: describe_transactions(cluster, ["a"]), script)) == ["a"]


def test_refusal_names_the_permission_on_the_transactional_id():
    refused = answer(described("a", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(ApiError, match=r"lacks DESCRIBE on transactional-id:a"):
        ask(
            lambda cluster: describe_transactions(cluster, ["a"]),
            {**coordinators(a=1), DescribeTransactionsRequest: [refused]},
        )


@pytest.mark.parametrize(
    "script", [coordinators(other=1), {**coordinators(a=1), DescribeTransactionsRequest: [answer()]}]
)
def test_answer_without_the_transactional_id_is_an_error(script):
    with pytest.raises(ApiError, match="missing in the response"):
        ask(lambda cluster: describe_transactions(cluster, ["a"]), script)


def producers(*states: ProducerState, number: int = 0, code: ErrorCode = ErrorCode.NONE):
    partition = PartitionResponse(partition_index=number, error_code=code, active_producers=list(states))
    return [DescribeProducersResponse(topics=[TopicResponse(name="t", partitions=[partition])])]


def test_leaders_describe_the_producers_of_their_partitions():
    idle = ProducerState(
        producer_id=9,
        producer_epoch=0,
        last_sequence=-1,
        last_timestamp=-1,
        coordinator_epoch=-1,
        current_txn_start_offset=-1,
    )
    busy = ProducerState(
        producer_id=8,
        producer_epoch=1,
        last_sequence=4,
        last_timestamp=50,
        coordinator_epoch=3,
        current_txn_start_offset=0,
    )
    script = {(0, DescribeProducersRequest): producers(idle, busy), (1, DescribeProducersRequest): producers(number=1)}
    found = ask(lambda cluster: describe_producers(cluster, [TopicPartition("t", 0), TopicPartition("t", 1)]), script)
    assert found == {
        TopicPartition("t", 0): [
            ProducerDescription(8, 1, 4, 50, 3, 0),
            ProducerDescription(9, 0, None, None, None, None),
        ],
        TopicPartition("t", 1): [],
    }


def test_refusal_names_the_permission_to_read_the_topic():
    script = {DescribeProducersRequest: producers(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    with pytest.raises(ApiError, match="lacks READ on topic:t"):
        ask(lambda cluster: describe_producers(cluster, [TopicPartition("t", 0)]), script)
