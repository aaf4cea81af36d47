"""Warns about records older than the retention of their topic. The lines of a log file may be years old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from barnabas.errors import ApiError

if TYPE_CHECKING:
    from barnabas import Admin

KEEP_ALL = "-1"
DAY_MS = 86_400_000


def create_topic_for_old_records(admin: Admin, topic: str, partitions: int, report: Callable[[str], None]) -> None:
    """Create a topic that keeps records of any age.

    :raises ApiError: the topic exists or cannot be created.
    """
    admin.create_topic(topic, partitions, config={"retention.ms": KEEP_ALL})
    report(
        f"created topic {topic} with retention.ms={KEEP_ALL}, because retention uses the timestamps of the lines; "
        f"to limit retention: barnabas config set topic {topic} retention.ms=..."
    )


class RetentionCheck:
    """Counts records that are older than a topic's retention."""

    def __init__(self, topic: str, retention_ms: int) -> None:
        self._topic = topic
        self._retention_ms = retention_ms
        self._old = 0
        self._all = 0

    @classmethod
    def of_topic(cls, admin: Admin, topic: str) -> Self | None:
        """Return the check for a topic; None if the topic has no time-based retention by the producer's timestamps."""
        try:
            settings = admin.describe_config(topic)
        except ApiError:
            return None  # a user with write permission may lack the permission to describe the settings
        values = {name: setting.value or "" for name, setting in settings.items()}
        retention = values.get("retention.ms", KEEP_ALL)
        deletes = "delete" in values.get("cleanup.policy", "delete")
        is_by_broker = values.get("message.timestamp.type") == "LogAppendTime"
        if retention.startswith("-") or not retention.isdigit() or not deletes or is_by_broker:
            return None
        return cls(topic, int(retention))

    def count(self, timestamps_ms: Sequence[int], now_ms: int) -> None:
        """Count sent records by their timestamps."""
        oldest_ms = now_ms - self._retention_ms
        self._old += sum(timestamp_ms < oldest_ms for timestamp_ms in timestamps_ms)
        self._all += len(timestamps_ms)

    def take_report(self) -> str | None:
        """Return a warning about the records counted since the last call; None if no record is too old."""
        old, count = self._old, self._all
        self._old = self._all = 0
        if not old:
            return None
        return (
            f"warning: {old:,} of {count:,} records are older than the retention of {self._topic} (retention.ms="
            f"{self._retention_ms}, {self._retention_ms / DAY_MS:.3g} days): the broker deletes them at its next "
            f"check; to keep them: barnabas config set topic {self._topic} retention.ms={KEEP_ALL}"
        )
