"""Which events the audit over months takes, without Spark: the condition is plain SQL."""

from __future__ import annotations

import duckdb
import pytest

from barnabas.spark.audit_frame import _is_of

EVENTS = [("clicks", "a1"), ("clicks", ""), ("clicks", "b2"), ("views", "a1"), ("views", "")]


@pytest.mark.parametrize(
    ("topic_id", "expected"),
    [
        ("a1", [("clicks", "a1"), ("clicks", "")]),
        ("", [("clicks", "a1"), ("clicks", ""), ("clicks", "b2")]),
    ],
)
def test_events_of_other_topics_are_left_out(topic_id: str, expected: list[tuple[str, str]]) -> None:
    values = ", ".join(f"('{topic}', '{each}')" for topic, each in EVENTS)
    query = f"select * from (values {values}) as event(topic, topic_id) where {_is_of('clicks', topic_id)}"
    assert duckdb.sql(query).fetchall() == expected
