"""Which replica a consumer should read from: one in its own rack, where there is one that has the records (KIP-392)."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.replication.in_sync import RemoteReplicas


def read_replica(
    replicas: RemoteReplicas, leader: int, rack: str, fetch_offset: int, racks: Mapping[int, str | None]
) -> int:
    """Return the broker to read from; the leader where no other is better.

    Only in-sync followers come into question: another may fall back further and further, and its readers with it.
    Of those in the consumer's rack, the one that has most.

    :param rack: the consumer's `client.rack`, empty if it tells none.
    :param fetch_offset: the follower has to be there already; else its reader would be told to come back.
    :param racks: of the brokers that live.
    """
    if not rack or racks.get(leader) == rack:
        return leader
    near = [each for each in replicas.caught_up_followers(fetch_offset) if racks.get(each) == rack]
    return max(near, key=replicas.log_end_offset_of, default=leader)
