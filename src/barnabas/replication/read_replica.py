"""Chooses the replica from which a consumer reads: a replica in the consumer's rack that has the records (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.replication.in_sync import RemoteReplicas


def read_replica(
    replicas: RemoteReplicas, leader: int, rack: str, fetch_offset: int, racks: Mapping[int, str | None]
) -> int:
    """Return the broker from which a consumer should read. This is the leader if no follower is suitable.

    Only in-sync followers are candidates, because other followers may fall further behind, together with their
    consumers. The result is the follower in the consumer's rack with the highest log end offset.

    :param rack: the consumer's `client.rack`, or an empty string.
    :param fetch_offset: the offset that the follower must have reached. Otherwise, it would redirect the consumer to
        the leader.
    :param racks: the rack of each live broker.
    """
    if not rack or racks.get(leader) == rack:
        return leader
    near = [each for each in replicas.caught_up_followers(fetch_offset) if racks.get(each) == rack]
    return max(near, key=replicas.log_end_offset_of, default=leader)
