"""Decides which settings of a topic the mirror sets, unsets or keeps in the target. No I/O."""

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
"""Settings that decide how long records are kept. The mirror copies their effective values, including broker
defaults."""

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
"""Settings that the mirror never copies: they concern the brokers of a cluster, or would make brokers change or reject
mirrored batches."""
OWN_PREFIXES = ("barnabas.key.", "barnabas.value.", "confluent.")
"""Prefixes of settings that the mirror never copies: they configure schema validation, which only the cluster that
producers write to performs."""

MS_PER = {".hours": 3_600_000, ".minutes": 60_000}
"""The unit of a broker setting in ms, by the suffix of its name. The corresponding topic settings are in ms."""

Value = str | None
"""The value of a topic setting; None if the topic does not override the broker's default."""


class SyncRule(Enum):
    """The rule that selects the settings that a mirror copies."""

    IN_FORCE = "in-force"
    """Copy the topic's own settings and the effective values of all `LIFETIME` settings."""
    TOPIC = "topic"
    """Copy only the topic's own settings."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SettingsFilter:
    """Selects the settings that the mirror copies. The settings in `left` are not copied."""

    follows: SyncRule = SyncRule.IN_FORCE
    left: frozenset[str] = frozenset()

    def matches(self, name: str) -> bool:
        """Return whether the mirror may change this setting in the target."""
        return self.follows is not SyncRule.NONE and name not in self.left


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The settings to set and unset in the target."""

    to_set: Mapping[str, str] = field(default_factory=dict)
    to_unset: tuple[str, ...] = ()
    kept: Mapping[str, Value] = field(default_factory=dict)
    """Settings that differ in the target and are kept, because another client changed them there."""

    def __bool__(self) -> bool:
        return bool(self.to_set or self.to_unset)


def own(found: Mapping[str, ConfigSetting]) -> dict[str, str]:
    """Return the topic's own settings, without defaults and sensitive values."""
    return {
        name: each.value
        for name, each in found.items()
        if each.source is ConfigSource.TOPIC and each.value is not None and not each.is_sensitive
    }


def followed(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the topic settings that the mirror copies.

    >>> followed({"retention.ms": "1000", "min.insync.replicas": "2"})
    {'retention.ms': '1000'}
    """
    return {name: value for name, value in sorted(settings.items()) if name not in OWN and not _is_own(name)}


def _is_own(name: str) -> bool:
    return name.startswith(OWN_PREFIXES)


def wanted(
    source: Mapping[str, ConfigSetting], target: Mapping[str, ConfigSetting], choice: SettingsFilter
) -> dict[str, str]:
    """Return the settings that the target's topic should have.

    An effective value becomes a topic setting only if the target's brokers have another default.

    :param source, target: all settings of the topics, with their effective values.
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
    # Mirrored records keep their source timestamps: so the target's brokers must not overwrite the timestamps with the
    # append time.
    create_time = _timestamp_type(TimestampType.CREATE_TIME)
    if TIMESTAMP_TYPE in target and without_topic(target[TIMESTAMP_TYPE]) != create_time:
        found[TIMESTAMP_TYPE] = create_time
    return {name: value for name, value in sorted(found.items()) if choice.matches(name)}


def _timestamp_type(which: TimestampType) -> str:
    """Return Kafka's name of a timestamp type, for example `CreateTime`."""
    return which.name.title().replace("_", "")


def without_topic(setting: ConfigSetting | None) -> Value:
    """Return the value that applies without the topic's own setting; None if the brokers do not report it."""
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
    """Return whether two values are equivalent: the order of cleanup policies does not matter."""
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
    """Return the necessary changes of the target's topic. Values that other clients have set are kept.

    :param wants: the result of `wanted`.
    :param there: the own settings of the target's topic.
    :param ours: the values that mirrors have set, by name; mirrors have never set a name without an entry.
    :param refused: the values that the target has recently rejected.

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
