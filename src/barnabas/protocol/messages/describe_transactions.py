"""DescribeTransactions (key 65): return the state of transactional ids and the partitions of their open transactions
(KIP-664).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, INT64, STRING, array, field, message, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = field(array(STRING))


@struct
class TransactionTopic:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@struct
class DescribedTransaction:
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[TransactionTopic] = field(array(TransactionTopic))


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[DescribedTransaction] = field(array(DescribedTransaction))
