"""ListTransactions (key 66): return the transactional ids that a broker coordinates (KIP-664).

Version 1 filters by duration (KIP-994), version 2 by a regular expression (KIP-1152).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, INT32, INT64, STRING, array, field, message, nullable, struct


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = field(array(STRING), default_factory=list)
    producer_id_filters: list[int] = field(array(INT64), default_factory=list)
    duration_filter: int = field(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = field(nullable(STRING, since=2), since=2, default=None)


@struct
class ListedTransaction:
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING), default_factory=list)
    transaction_states: list[ListedTransaction] = field(array(ListedTransaction))
