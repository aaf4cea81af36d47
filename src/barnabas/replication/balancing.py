"""Balances a cluster, so that all brokers have about the same number of replicas and of preferred leaders, with few
moves.

The counts of two brokers may differ by one. Replicas move from the broker with the most replicas to the broker with the
fewest. A move must not reduce the number of racks that hold a partition, and must not put two replicas of a partition
on one machine. The plan prefers to move a replica that makes
the byte counts of the two brokers more equal; otherwise, it moves the smallest replica.

Afterwards, the plan changes preferred leaders by reordering replicas, which moves no data. The module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from barnabas.replication.machines import NO_LABELS, Machines, machine_of

Partition = TypeVar("Partition")
"""The type of the keys that identify partitions."""


def balance(
    placed: Mapping[Partition, Sequence[int]],
    brokers: Mapping[int, str | None],
    sizes: Mapping[Partition, int] | None = None,
    machines: Machines = NO_LABELS,
) -> dict[Partition, tuple[int, ...]]:
    """Return the new replicas of each partition whose replicas should change.

    :param placed: the brokers that hold each partition, with the preferred leader first.
    :param brokers: the live brokers, each with its rack. The plan moves no replicas from or to other brokers.
    :param sizes: the size of each partition in bytes.
    :param machines: the labels of the brokers' machines.

    >>> balance({"a": (1, 2), "b": (1, 2), "c": (1, 2)}, {1: None, 2: None, 3: None})
    {'a': (1, 3), 'b': (3, 2), 'c': (2, 1)}
    >>> balance({"a": (1, 2), "b": (1, 2)}, {1: None, 2: None})
    {'a': (2, 1)}
    """
    plan = _Plan(placed, brokers, sizes or {}, machines)
    plan.move_replicas()
    plan.change_leaders()
    return {each: after for each, after in plan.placed.items() if after != tuple(placed[each])}


class _Plan(Generic[Partition]):
    def __init__(
        self,
        placed: Mapping[Partition, Sequence[int]],
        brokers: Mapping[int, str | None],
        sizes: Mapping[Partition, int],
        machines: Machines,
    ) -> None:
        self.placed = {partition: tuple(replicas) for partition, replicas in placed.items()}
        self._brokers = brokers
        self._machines = machines
        self._sizes = sizes
        self._held: dict[int, dict[Partition, None]] = {each: {} for each in brokers}
        """The partitions that each broker holds. Dicts keep their order, so the plan is deterministic."""
        self._bytes = Counter(dict.fromkeys(brokers, 0))
        self._leads = Counter(dict.fromkeys(brokers, 0))
        for partition, replicas in self.placed.items():
            self._leads[replicas[0]] += 1
            for each in replicas:
                if each in self._held:
                    self._held[each][partition] = None
                    self._bytes[each] += self._sizes.get(partition, 0)

    # -- replicas -------------------------------------------------------------------------------------------------

    def move_replicas(self) -> None:
        """Move replicas until the replica counts of any two brokers differ by at most one, if racks allow that."""
        while (move := self._next_move()) is not None:
            partition, source, target = move
            before, size = self.placed[partition], self._sizes.get(partition, 0)
            self.placed[partition] = tuple(target if each == source else each for each in before)
            del self._held[source][partition]
            self._held[target][partition] = None
            self._bytes.update({source: -size, target: size})
            if before[0] == source:
                self._leads.update({source: -1, target: 1})

    def _next_move(self) -> tuple[Partition, int, int] | None:
        by_count = sorted(self._brokers, key=lambda each: (len(self._held[each]), each))
        for source in reversed(by_count):
            for target in by_count:
                if len(self._held[source]) - len(self._held[target]) < 2:
                    break
                partition = self._best(source, target)
                if partition is not None:
                    return partition, source, target
        return None

    def _best(self, source: int, target: int) -> Partition | None:
        """Return the best partition to move from `source` to `target`, or None if no partition can be moved."""
        able = [each for each in self._held[source] if self._may_go(each, source, target)]
        ahead = self._bytes[source] - self._bytes[target]
        must_lead = self._leads[source] > self._leads[target]

        def rank(partition: Partition) -> tuple[bool, int, bool]:
            size = self._sizes.get(partition, 0)
            is_leader = self.placed[partition][0] == source
            return (2 * size > max(0, ahead), -size if 2 * size <= ahead else size, is_leader != must_lead)

        return min(able, key=rank, default=None)

    def _may_go(self, partition: Partition, source: int, target: int) -> bool:
        replicas = self.placed[partition]
        after = [target if each == source else each for each in replicas]
        machine, kept = machine_of(target, self._machines), (each for each in replicas if each != source)
        return (
            target not in replicas
            and self._rack_count(after) >= self._rack_count(replicas)
            and all(machine_of(each, self._machines) != machine for each in kept)
        )

    def _rack_count(self, replicas: Iterable[int]) -> int:
        """Return the number of racks that hold these replicas.

        A broker without a rack is treated as a separate rack.
        """
        return len({self._brokers.get(each) or each for each in replicas})

    # -- leaders --------------------------------------------------------------------------------------------------

    def change_leaders(self) -> None:
        """Reorder replicas until the leader counts of two brokers that share a partition differ by at most one."""
        leads, is_changed = self._leads, True
        while is_changed:
            is_changed = False
            for partition, replicas in self.placed.items():
                able = [each for each in replicas[1:] if each in self._brokers]
                if not able:
                    continue
                other = min(able, key=lambda each: (leads[each], each))
                if leads[replicas[0]] - leads[other] >= 2:
                    leads[replicas[0]] -= 1
                    leads[other] += 1
                    self.placed[partition] = _led_by(other, replicas)
                    is_changed = True


def _led_by(leader: int, replicas: Sequence[int]) -> tuple[int, ...]:
    """Return the replicas with `leader` first. The previous first replica takes its position."""
    return tuple({leader: replicas[0], replicas[0]: leader}.get(each, each) for each in replicas)
