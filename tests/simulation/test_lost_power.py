"""Of whom the simulation may take the power: of nobody where that loses what is not promised to stay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.coordination import paths
from barnabas.coordination.values import PartitionState, encode_config, encode_partition_state
from barnabas.model import TopicPartition
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.ensemble import SimulatedSession
from tests.simulation.invariants import Invariants

PLACE = TopicPartition("states", 0)
STATE, CONFIG = paths.partition_state(PLACE), paths.topic_config(PLACE.topic)
LATE, AT_ONCE = (encode_config({"flush.messages": each}) for each in ("1000000", "1"))


class MetadataStore:
    """A tree with one partition, of which 3 and 4 are in sync, as the simulation's machines are looked at from it."""

    def __init__(self, flush_messages: int, config: bytes | None) -> None:
        self.nodes = {STATE: self._node(self._state(3, 4))}
        if config is not None:
            self.nodes[CONFIG] = self._node(config)
        self.on_set: list[Any] = []
        disk = SimpleNamespace(holds=lambda _: False)
        cluster = SimpleNamespace(
            ensemble=self,
            machines=dict.fromkeys((3, 4), SimpleNamespace(disk=disk)),
            settings={"log_flush_interval_messages": flush_messages},
        )
        self.invariants = Invariants(cast(SimulatedCluster, cluster))

    def set(self, path: str, data: bytes) -> None:
        old, self.nodes[path] = self.nodes[path].data, self._node(data)
        for call in self.on_set:
            call(cast(SimulatedSession, None), path, old, data)

    def set_in_sync(self, *numbers: int) -> None:
        self.set(STATE, self._state(*numbers))

    def lose_power(self, number: int) -> bool:
        """Take a broker's power if that may be; return whether it was."""
        if not self.invariants.may_lose_power({number}):
            return False
        self.invariants.note_lost_power(number)
        return True

    @staticmethod
    def _state(*numbers: int) -> bytes:
        return encode_partition_state(PartitionState(numbers[0], 1, numbers))

    @staticmethod
    def _node(data: bytes) -> Any:
        return SimpleNamespace(data=data)


@pytest.mark.parametrize(("flush_messages", "config"), [(1_000_000, None), (1_000_000, encode_config({})), (1, LATE)])
def test_the_last_that_keeps_its_memory_keeps_its_power_where_a_topic_is_not_flushed_at_once(
    flush_messages: int, config: bytes | None
) -> None:
    tree = MetadataStore(flush_messages, config)
    assert tree.lose_power(3)
    assert not tree.lose_power(4)  # 3 is in sync by name only


def test_who_came_back_in_sync_counts_again() -> None:
    tree = MetadataStore(1_000_000, LATE)
    assert tree.lose_power(3)
    assert tree.invariants.members(PLACE) == {4}
    tree.set_in_sync(4)
    tree.invariants.note_boot(3)
    tree.set_in_sync(4, 3)
    assert tree.invariants.members(PLACE) == {3, 4}
    assert tree.lose_power(4)


def test_who_is_taken_in_for_what_it_had_before_it_lost_its_power_is_there_by_name_only() -> None:
    tree = MetadataStore(1_000_000, LATE)
    tree.set_in_sync(4)
    assert tree.lose_power(3)
    tree.set_in_sync(4, 3)  # decided before, and on its way to the tree meanwhile
    assert tree.invariants.members(PLACE) == {4}
    assert not tree.lose_power(4)
    tree.set_in_sync(4)
    tree.invariants.note_boot(3)
    tree.set_in_sync(4, 3)
    assert tree.invariants.members(PLACE) == {3, 4}


def test_who_had_no_state_to_write_when_it_came_back_counts_again() -> None:
    tree = MetadataStore(1_000_000, LATE)
    tree.set_in_sync(3)  # the only one stays in sync, since nobody has more
    tree.invariants.note_lost_power(3)
    tree.invariants.note_boot(3)
    tree.set_in_sync(3, 4)
    tree.set_in_sync(4)
    tree.set_in_sync(4, 3)
    assert tree.invariants.members(PLACE) == {3, 4}


@pytest.mark.parametrize("config", [None, encode_config({}), AT_ONCE])
def test_all_may_lose_their_power_where_each_record_is_flushed(config: bytes | None) -> None:
    tree = MetadataStore(1, config)
    assert tree.lose_power(3)
    assert tree.lose_power(4)


def test_what_a_topic_had_not_flushed_before_its_setting_changed_is_thought_of() -> None:
    tree = MetadataStore(1, LATE)
    tree.set(CONFIG, AT_ONCE)
    assert tree.lose_power(3)
    assert not tree.lose_power(4)
