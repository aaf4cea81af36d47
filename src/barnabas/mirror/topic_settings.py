"""The settings of a topic that go with it to the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OWN = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
        "compression.type",
        "remote.storage.enable",
    }
)
"""Each cluster has its own: what is about its brokers, and what would change or refuse batches as they come."""
OWN_PREFIXES = ("barnabas.key.", "barnabas.value.", "confluent.")
"""Schemas are checked where records are produced."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What has to be set and unset in the target."""

    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.to_set or self.to_unset)


def followed(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of a topic's own settings that its mirror has too.

    >>> followed({"retention.ms": "1000", "min.insync.replicas": "2"})
    {'retention.ms': '1000'}
    """
    return {name: value for name, value in sorted(settings.items()) if name not in OWN and not _is_own(name)}


def _is_own(name: str) -> bool:
    return name.startswith(OWN_PREFIXES)


def change(source: Mapping[str, str], target: Mapping[str, str]) -> SettingsChange:
    """Return how the target's settings become those of the source; of those that each has of its own nothing changes.

    >>> change({"retention.ms": "1"}, {"retention.bytes": "5", "min.insync.replicas": "2"})
    SettingsChange(to_set={'retention.ms': '1'}, to_unset=('retention.bytes',))
    """
    wanted, there = followed(source), followed(target)
    to_set = {name: value for name, value in wanted.items() if there.get(name) != value}
    return SettingsChange(to_set, tuple(name for name in there if name not in wanted))
