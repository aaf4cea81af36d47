"""The choice of the replica that a consumer reads from: one in its own rack that has the records (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.replication.in_sync import RemoteReplicas


def read_replica(
    replicas: RemoteReplicas, leader: int, rack: str, fetch_offset: int, racks: Mapping[int, str | None]
) -> int:
    """Return the broker that a consumer should read from; the leader if no follower is better.

    Only in-sync followers are candidates, because others may fall further and further behind together with their
    consumers. Among those in the consumer's rack, the follower with the highest log end offset is chosen.

    :param rack: the consumer's `client.rack`; empty if it has none.
    :param fetch_offset: the offset that the follower must have reached. Otherwise it would send the consumer back.
    :param racks: the rack of each live broker.
    """
    if not rack or racks.get(leader) == rack:
        return leader
    near = [each for each in replicas.caught_up_followers(fetch_offset) if racks.get(each) == rack]
    return max(near, key=replicas.log_end_offset_of, default=leader)
