"""The subscription and the assignment of a consumer, which JoinGroup and SyncGroup contain as opaque bytes.

The broker does not decode them. Both begin with an int16 version. Version 1 of the subscription adds the partitions
that the member owns (KIP-429), version 2 their generation (KIP-792), version 3 the rack of the member (KIP-881).
"""

from __future__ import annotations

from barnabas.protocol.declare import BYTES, INT32, STRING, array, field, message, nullable, struct


@struct
class OwnedPartitions:
    topic: str = field(STRING, since=1, default="")
    partitions: list[int] = field(array(INT32), since=1, default_factory=list)


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(nullable(BYTES), default=None)
    owned_partitions: list[OwnedPartitions] = field(
        array(OwnedPartitions), since=1, default_factory=list, ignorable=True
    )
    generation_id: int = field(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = field(nullable(STRING, since=3), since=3, default=None, ignorable=True)


@struct
class AssignedPartitions:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[AssignedPartitions] = field(array(AssignedPartitions))
    user_data: bytes | None = field(nullable(BYTES), default=None)
