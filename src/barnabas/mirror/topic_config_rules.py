"""Decides which settings of a topic are set, unset or left unchanged in the target. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from barnabas.client.admin.configs import ConfigSetting, ConfigSource
from barnabas.model import TimestampType

CLEANUP_POLICY = "cleanup.policy"
TIMESTAMP_TYPE = "message.timestamp.type"

LIFETIME = (
    CLEANUP_POLICY,
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)
"""What decides how long records live. Their values in force follow, also where the source's brokers set them."""

OWN = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        TIMESTAMP_TYPE,
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

MS_PER = {".hours": 3_600_000, ".minutes": 60_000}
"""The units of brokers' settings that topics have in ms, by the end of the name."""

Value = str | None
"""Of a setting of a topic; None: it is not set for the topic."""


class SyncRule(Enum):
    """Which settings a mirror has follow."""

    IN_FORCE = "in-force"
    """Those that were set for the topic, and all in force that decide how long records live."""
    TOPIC = "topic"
    """Those that were set for the topic."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SettingsFilter:
    """What follows, but for the settings in `left`, which stay as the target has them."""

    follows: SyncRule = SyncRule.IN_FORCE
    left: frozenset[str] = frozenset()

    def matches(self, name: str) -> bool:
        """Return whether a mirror may set a setting in the target."""
        return self.follows is not SyncRule.NONE and name not in self.left


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What has to be set and unset in the target."""

    to_set: Mapping[str, str] = field(default_factory=dict)
    to_unset: tuple[str, ...] = ()
    kept: Mapping[str, Value] = field(default_factory=dict)
    """Settings of the target that differ and stay, because somebody else has changed them there."""

    def __bool__(self) -> bool:
        return bool(self.to_set or self.to_unset)


def own(found: Mapping[str, ConfigSetting]) -> dict[str, str]:
    """Return what was set for a topic itself."""
    return {
        name: each.value
        for name, each in found.items()
        if each.source is ConfigSource.TOPIC and each.value is not None and not each.is_sensitive
    }


def followed(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of a topic's own settings that its mirror has too.

    >>> followed({"retention.ms": "1000", "min.insync.replicas": "2"})
    {'retention.ms': '1000'}
    """
    return {name: value for name, value in sorted(settings.items()) if name not in OWN and not _is_own(name)}


def _is_own(name: str) -> bool:
    return name.startswith(OWN_PREFIXES)


def wanted(
    source: Mapping[str, ConfigSetting], target: Mapping[str, ConfigSetting], choice: SettingsFilter
) -> dict[str, str]:
    """Return what is to be set for the target's topic.

    A value in force is set for the topic only where the target's brokers would give the topic another one.

    :param source, target: all settings of the topics, with the values in force.
    """
    found = followed(own(source))
    if choice.follows is SyncRule.IN_FORCE:
        for name in LIFETIME:
            value = source[name].value if name in source else None
            if name in found or value is None:
                continue
            is_known = name in target or not source[name].is_default
            if is_known and not same(name, value, without_topic(target.get(name))):
                found[name] = value
    # Records bring the times that consumers of the source see, and the target's brokers must not write over them.
    create_time = _timestamp_type(TimestampType.CREATE_TIME)
    if TIMESTAMP_TYPE in target and without_topic(target[TIMESTAMP_TYPE]) != create_time:
        found[TIMESTAMP_TYPE] = create_time
    return {name: value for name, value in sorted(found.items()) if choice.matches(name)}


def _timestamp_type(which: TimestampType) -> str:
    """Return Kafka's name, for example `CreateTime`."""
    return which.name.title().replace("_", "")


def without_topic(setting: ConfigSetting | None) -> Value:
    """Return the value that a topic would have if the setting were not set for it; None where brokers do not say."""
    if setting is None:
        return None
    if setting.source is not ConfigSource.TOPIC:
        return setting.value
    for each in setting.synonyms:
        if each.source is not ConfigSource.TOPIC:
            factor = next((factor for end, factor in MS_PER.items() if each.name.endswith(end)), 1)
            return each.value if factor == 1 else _times(each.value, factor)
    return None


def _times(value: Value, factor: int) -> Value:
    try:
        number = int(value or "")
    except ValueError:
        return None
    return str(number * factor if number >= 0 else -1)


def same(name: str, one: Value, other: Value) -> bool:
    """Return whether two values mean the same."""
    if one is None or other is None or name != CLEANUP_POLICY:
        return one == other
    return _words(one) == _words(other)


def _words(value: str) -> set[str]:
    return {word.strip() for word in value.split(",") if word.strip()}


def change(
    wants: Mapping[str, str],
    there: Mapping[str, str],
    ours: Mapping[str, Collection[Value]],
    refused: Mapping[str, Value] | None = None,
) -> SettingsChange:
    """Return how the target's topic gets what is wanted, without a change to what others have set there.

    :param wants: see `wanted`.
    :param there: what is set for the target's topic itself.
    :param ours: the values that mirrors have left there, by name. A setting without an entry was left unset.
    :param refused: the values that the target did not take lately.

    >>> change({"retention.ms": "1"}, {"retention.bytes": "5", "segment.ms": "7"}, {"retention.bytes": ["5"]})
    SettingsChange(to_set={'retention.ms': '1'}, to_unset=('retention.bytes',), kept={})
    """
    to_set: dict[str, str] = {}
    to_unset: list[str] = []
    kept: dict[str, Value] = {}
    for name in sorted({*wants, *ours}):
        now, want = there.get(name), wants.get(name)
        if same(name, now, want):
            continue
        if now not in ours.get(name, (None,)):
            kept[name] = now
        elif refused is not None and name in refused and refused[name] == want:
            continue
        elif want is None:
            to_unset.append(name)
        else:
            to_set[name] = want
    return SettingsChange(to_set, tuple(to_unset), kept)
