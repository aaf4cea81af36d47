"""The naming strategies for subjects: by topic, by record type, or by both."""

from __future__ import annotations

from collections.abc import Callable

SubjectName = Callable[[str, bool, str], str]
"""A naming strategy: a function that returns the subject for a topic, a flag (True for a key), and the full name of the
record type.
"""


def by_topic(topic: str, is_key: bool, _type_name: str) -> str:
    """Return the subject by topic (TopicNameStrategy, the default): all records of a topic have one type.

    >>> by_topic("clicks", False, "web.Click")
    'clicks-value'
    """
    return f"{topic}-{'key' if is_key else 'value'}"


def by_record(_topic: str, _is_key: bool, type_name: str) -> str:
    """Return the subject by record type (RecordNameStrategy): a type has the same schema versions in all topics.

    >>> by_record("clicks", False, "web.Click")
    'web.Click'
    """
    return type_name


def by_topic_and_record(topic: str, _is_key: bool, type_name: str) -> str:
    """Return the subject by topic and record type (TopicRecordNameStrategy): a topic may have several types.

    >>> by_topic_and_record("clicks", False, "web.Click")
    'clicks-web.Click'
    """
    return f"{topic}-{type_name}"
