"""InitProducerId (key 22): return a producer id and an epoch for an idempotent producer (KIP-98).

Version 2 is the first flexible version. In version 3, a producer can request the next epoch of its producer id
(KIP-360). Version 4 can return PRODUCER_FENCED, version 5 TRANSACTION_ABORTABLE (KIP-890). Version 6 supports
transactions with two-phase commit (KIP-939).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT16, INT32, INT64, STRING, field, message, nullable


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = field(nullable(STRING))
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)
    enable2_pc: bool = field(BOOLEAN, since=6, default=False)
    keep_prepared_txn: bool = field(BOOLEAN, since=6, default=False)


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1)
