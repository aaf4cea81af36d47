"""The settings of one log, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from barnabas.errors import ConfigurationError
from barnabas.model import TimestampType

_DAY_MS = 24 * 60 * 60 * 1000
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
NEVER = _LONG_MAX
"""The value for "no limit". In `flush.messages` and `flush.ms`, it leaves flushing to the operating system."""
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


class CleanupPolicy(StrEnum):
    """The treatment of old segments. A log may have both policies. Without a policy, all segments are kept."""

    DELETE = "delete"
    """Delete whole segments, by age and by size."""
    COMPACT = "compact"
    """Keep the last record of each key."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one log.

    >>> LogConfig().override({"segment.bytes": "1048576"}).segment_bytes
    1048576
    """

    segment_bytes: int = 1024**3
    """The maximum size of a segment. An append that would exceed it rolls to a new segment."""
    segment_ms: int = 7 * _DAY_MS
    """The maximum time between the first and the last record of a segment."""
    segment_index_bytes: int = 10 * 1024**2
    """The maximum size of the offset index of a segment."""
    index_interval_bytes: int = 4096
    """The number of bytes of batches between two entries of the sparse indexes."""
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    """The maximum size of a batch, in bytes."""
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5
    """The ratio of dirty bytes to all bytes above which the cleaner compacts a log again."""
    min_compaction_lag_ms: int = 0
    """The minimum time that a record remains uncompacted."""
    max_compaction_lag_ms: int = NEVER
    """The maximum time that a record remains uncompacted."""
    delete_retention_ms: int = _DAY_MS
    """The time that a tombstone remains after the first compaction of its batch."""
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_after_max_ms: int = NEVER

    # These values are computed from the settings above. They are attributes for speed, because each append reads them.
    is_compacted: bool = field(init=False, repr=False, compare=False)
    """True if compaction removes records, so that the log may have gaps."""
    roll_ms: int = field(init=False, repr=False, compare=False)
    """The maximum time between the first and the last record of a segment.

    In a compacted log, it does not exceed `max.compaction.lag.ms`, because the cleaner never compacts the active
    segment.
    """
    has_timestamp_bounds: bool = field(init=False, repr=False, compare=False)
    """True if a batch can be rejected because of its timestamps."""

    def __post_init__(self) -> None:
        _check_range("segment.bytes", self.segment_bytes, 14, _INT_MAX)
        _check_range("segment.ms", self.segment_ms, 1, _LONG_MAX)
        _check_range("segment.index.bytes", self.segment_index_bytes, 8, _INT_MAX)
        _check_range("index.interval.bytes", self.index_interval_bytes, 0, _INT_MAX)
        _check_range("retention.ms", self.retention_ms, -1, _LONG_MAX)
        _check_range("retention.bytes", self.retention_bytes, -1, _LONG_MAX)
        _check_range("max.message.bytes", self.max_message_bytes, 0, _INT_MAX)
        _check_range("flush.messages", self.flush_messages, 1, _LONG_MAX)
        _check_range("flush.ms", self.flush_ms, 0, _LONG_MAX)
        _check_range("min.cleanable.dirty.ratio", self.min_cleanable_dirty_ratio, 0, 1)
        _check_range("min.compaction.lag.ms", self.min_compaction_lag_ms, 0, _LONG_MAX)
        _check_range("max.compaction.lag.ms", self.max_compaction_lag_ms, 1, _LONG_MAX)
        _check_range("delete.retention.ms", self.delete_retention_ms, 0, _LONG_MAX)
        _check_range("message.timestamp.before.max.ms", self.message_timestamp_before_max_ms, 0, _LONG_MAX)
        _check_range("message.timestamp.after.max.ms", self.message_timestamp_after_max_ms, 0, _LONG_MAX)
        is_compacted = CleanupPolicy.COMPACT in self.cleanup_policy
        bounds_ms = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        object.__setattr__(self, "is_compacted", is_compacted)
        object.__setattr__(
            self, "roll_ms", min(self.segment_ms, self.max_compaction_lag_ms) if is_compacted else self.segment_ms
        )
        object.__setattr__(self, "has_timestamp_bounds", bounds_ms != (NEVER, NEVER))

    @property
    def has_flush_policy(self) -> bool:
        """True if consumers may read records only after a flush (paper, 3.1)."""
        return self.flush_messages != NEVER or self.flush_ms != NEVER

    @property
    def deletes_old(self) -> bool:
        """True if `retention_ms` and `retention_bytes` apply."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    def override(self, settings: Mapping[str, str | None]) -> LogConfig:
        """Return this configuration, changed by the settings of a topic.

        The value None resets a setting to its default.

        :param settings: Kafka's dotted names, with values as text.
        :raises ConfigurationError: a name does not exist, or its value is invalid.
        """
        values: dict[str, Any] = {
            _field_of(name): _parse(name, text) for name, text in settings.items() if text is not None
        }
        return replace(self, **values)


_FIELDS = {each.name.replace("_", "."): each.name for each in fields(LogConfig) if each.init}


def _field_of(name: str) -> str:
    if name not in _FIELDS:
        raise ConfigurationError(f"unknown topic setting {name!r}; valid settings: {', '.join(sorted(_FIELDS))}")
    return _FIELDS[name]


def _parse(name: str, text: str) -> int | float | TimestampType | frozenset[CleanupPolicy]:
    if name == "min.cleanable.dirty.ratio":
        return _number(name, text)
    if name == "message.timestamp.type":
        if text not in _TIMESTAMP_TYPES:
            raise ConfigurationError(f"{name} is {text!r}; it must be {' or '.join(_TIMESTAMP_TYPES)}")
        return _TIMESTAMP_TYPES[text]
    if name == "cleanup.policy":
        return _parse_cleanup_policy(text)
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; it must be a whole number") from None


def _parse_cleanup_policy(text: str) -> frozenset[CleanupPolicy]:
    try:
        return frozenset(CleanupPolicy(item.strip()) for item in text.split(",")) if text.strip() else frozenset()
    except ValueError:
        raise ConfigurationError(f"cleanup.policy is {text!r}; it must be delete, compact, both, or empty") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; it must be a number") from None


def _check_range(name: str, value: float, least: int, greatest: int) -> None:
    if not least <= value <= greatest:
        raise ConfigurationError(f"{name} is {value}; it must be from {least} to {greatest}")
