"""Under which subject a record's schema is registered: by its topic, by the name of its type, or by both."""

from __future__ import annotations

from collections.abc import Callable

SubjectName = Callable[[str, bool, str], str]
"""Of topic, whether it is a key, and the full name of the record's type."""


def by_topic(topic: str, is_key: bool, _type_name: str) -> str:
    """One type for all records of a topic: TopicNameStrategy, the default.

    >>> by_topic("clicks", False, "web.Click")
    'clicks-value'
    """
    return f"{topic}-{'key' if is_key else 'value'}"


def by_record(_topic: str, _is_key: bool, type_name: str) -> str:
    """A type evolves alike in all topics: RecordNameStrategy.

    >>> by_record("clicks", False, "web.Click")
    'web.Click'
    """
    return type_name


def by_topic_and_record(topic: str, _is_key: bool, type_name: str) -> str:
    """Several types in a topic, each of which evolves: TopicRecordNameStrategy.

    >>> by_topic_and_record("clicks", False, "web.Click")
    'clicks-web.Click'
    """
    return f"{topic}-{type_name}"
