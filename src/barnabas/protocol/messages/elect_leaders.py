"""ElectLeaders (key 43): elect the preferred replicas as leaders (KIP-460).

Version 1 adds the election type and an error code for the whole response, version 2 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, STRING, array, field, message, nullable, struct

PREFERRED_ELECTION, UNCLEAN_ELECTION = 0, 1


@struct
class TopicPartitions:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = field(INT8, since=1, default=PREFERRED_ELECTION)
    topic_partitions: list[TopicPartitions] | None = field(nullable(array(TopicPartitions)))
    timeout_ms: int = field(INT32, default=60_000)


@struct
class PartitionResult:
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))


@struct
class ReplicaElectionResult:
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, since=1, default=0)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
