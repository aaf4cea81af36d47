"""The settings of one log, under Kafka's names and with Kafka's defaults."""

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
"""The value of `flush.messages` and `flush.ms` that leaves flushing to the operating system."""
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


class CleanupPolicy(StrEnum):
    """What becomes of old segments; a log may have both, or neither: then all segments stay."""

    DELETE = "delete"
    """They go as a whole, by time and by size."""
    COMPACT = "compact"
    """Of each key the last record is kept."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one log is kept.

    >>> LogConfig().override({"segment.bytes": "1048576"}).segment_bytes
    1048576
    """

    segment_bytes: int = 1024**3
    """A segment that would grow beyond this is closed and another one begun."""
    segment_ms: int = 7 * _DAY_MS
    """A segment whose records span more time than this is closed."""
    segment_index_bytes: int = 10 * 1024**2
    """A segment whose offset index has this size is closed."""
    index_interval_bytes: int = 4096
    """Bytes of batches between two entries of the sparse indexes."""
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    """The largest batch that is taken."""
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    min_cleanable_dirty_ratio: float = 0.5
    """How much of a compacted log was appended since it was compacted, before it is compacted again."""
    min_compaction_lag_ms: int = 0
    """How long a record stays before it can be compacted away."""
    max_compaction_lag_ms: int = NEVER
    """How long a record can wait for compaction."""
    delete_retention_ms: int = _DAY_MS
    """How long a tombstone stays after it was first compacted."""
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_after_max_ms: int = NEVER

    # Follow from the settings above. They are attributes, since each append reads them.
    is_compacted: bool = field(init=False, repr=False, compare=False)
    """True if records may be missing between others: compaction keeps the last record of each key."""
    roll_ms: int = field(init=False, repr=False, compare=False)
    """A segment whose records span more time than this is closed: a record cannot be compacted before."""
    has_timestamp_bounds: bool = field(init=False, repr=False, compare=False)
    """True if batches may be refused for their timestamps."""

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
        """Return whether messages are exposed only after they were flushed (paper, 3.1)."""
        return self.flush_messages != NEVER or self.flush_ms != NEVER

    @property
    def deletes_old(self) -> bool:
        """Return whether `retention_ms` and `retention_bytes` hold."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    def override(self, settings: Mapping[str, str | None]) -> LogConfig:
        """Return this configuration with a topic's own settings; None stands for the default.

        :param settings: Kafka's dotted names and values as text.
        :raises ConfigurationError: a name that does not exist or a value that it cannot have.
        """
        values: dict[str, Any] = {
            _field_of(name): _parse(name, text) for name, text in settings.items() if text is not None
        }
        return replace(self, **values)


_FIELDS = {each.name.replace("_", "."): each.name for each in fields(LogConfig) if each.init}


def _field_of(name: str) -> str:
    if name not in _FIELDS:
        raise ConfigurationError(f"unknown topic setting {name!r}; there are {', '.join(sorted(_FIELDS))}")
    return _FIELDS[name]


def _parse(name: str, text: str) -> int | float | TimestampType | frozenset[CleanupPolicy]:
    if name == "min.cleanable.dirty.ratio":
        return _number(name, text)
    if name == "message.timestamp.type":
        if text not in _TIMESTAMP_TYPES:
            raise ConfigurationError(f"{name} is {text!r}; it can be {' or '.join(_TIMESTAMP_TYPES)}")
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
        raise ConfigurationError(f"cleanup.policy is {text!r}; it can be delete, compact, both, or empty") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; it must be a number") from None


def _check_range(name: str, value: float, least: int, greatest: int) -> None:
    if not least <= value <= greatest:
        raise ConfigurationError(f"{name} is {value}; it must be from {least} to {greatest}")
