"""FindCoordinator (key 10): return the broker that coordinates a group or a transaction.

Version 1 adds the key type, version 3 is the first flexible version, version 4 accepts several keys (KIP-699). Version
5 can return TRANSACTION_ABORTABLE (KIP-890), version 6 supports share groups (KIP-932).
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, STRING, array, field, message, nullable, struct

GROUP_KEY = 0
TRANSACTION_KEY = 1
SHARE_KEY = 2


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = field(STRING, until=3, default="")
    key_type: int = field(INT8, since=1, default=GROUP_KEY)
    coordinator_keys: list[str] = field(array(STRING), since=4, default_factory=list)


@struct
class Coordinator:
    key: str = field(STRING, since=4, default="")
    node_id: int = field(INT32, since=4, default=0)
    host: str = field(STRING, since=4, default="")
    port: int = field(INT32, since=4, default=0)
    error_code: int = field(INT16, since=4, default=0)
    error_message: str | None = field(nullable(STRING, since=4), since=4, default="", ignorable=True)


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
    error_code: int = field(INT16, until=3, default=0)
    error_message: str | None = field(nullable(STRING, since=1), since=1, until=3, default="", ignorable=True)
    node_id: int = field(INT32, until=3, default=0)
    host: str = field(STRING, until=3, default="")
    port: int = field(INT32, until=3, default=0)
    coordinators: list[Coordinator] = field(array(Coordinator), since=4, default_factory=list)
