"""Which partitions are read from a follower in the consumer's rack, because their leader said so (KIP-392). No I/O.

A leader that is asked by a consumer with `client_rack` answers with the replica to read from. It is held to for as long
as metadata is (`metadata_max_age_ms`, as Java's consumer does), and given up before that as soon as it answers with an
error or not at all, or another broker leads. Then the leader is asked again, and names another one, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.client.cluster import ClusterView
from barnabas.client.consumer.subscription import AssignedPartition


class _Named(NamedTuple):
    node_id: int
    leader: int
    until_s: float


class PreferredReplicas:
    """Not thread-safe: the consumer guards it.

    :param rack: where the consumer stands; empty: all is read from leaders.
    :param now_s: monotonic seconds.
    :param lease_s: so long a replica is read from before the leader is asked again.
    """

    def __init__(self, rack: str, now_s: Callable[[], float], lease_s: float) -> None:
        self.rack = rack
        self._now_s = now_s
        self._lease_s = lease_s
        self._named: dict[AssignedPartition, _Named] = {}

    def source(self, state: AssignedPartition, view: ClusterView) -> int | None:
        """Return the broker to read a partition from; None: nobody leads it, as far as is known."""
        leader = view.leader(state.tp)
        if not self._named:
            return leader
        named = self._named.get(state)
        if named is None:
            return leader
        if named.leader == leader and named.node_id in view.brokers:
            return named.node_id
        del self._named[state]
        return leader

    def name(self, state: AssignedPartition, node_id: int, leader: int) -> None:
        """Read a partition from `node_id` from now on: its leader says so."""
        self._named[state] = _Named(node_id, leader, self._now_s() + self._lease_s)

    def give_up(self, state: AssignedPartition, node_id: int) -> int | None:
        """Ask the leader again, if it is `node_id` that a partition is read from in its place; return the leader."""
        named = self._named.get(state)
        if named is None or named.node_id != node_id:
            return None
        del self._named[state]
        return named.leader

    def give_up_if_due(self, state: AssignedPartition, node_id: int) -> int | None:
        """Do as `give_up` does, if the replica has been read from for long enough."""
        named = self._named.get(state)
        return self.give_up(state, node_id) if named is not None and self._now_s() >= named.until_s else None

    def forget(self, is_gone: Callable[[AssignedPartition], bool]) -> None:
        """Forget partitions that are not read any more."""
        if self._named:
            self._named = {state: named for state, named in self._named.items() if not is_gone(state)}
