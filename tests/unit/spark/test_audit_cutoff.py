"""Which moment an audit over months is of: no load is committed while it looks, and what may be missing is open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.audit.watermark import AuditState
from barnabas.client.admin.admin import Admin
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.audit_cutoff import _behind, table_and_ends
from barnabas.spark.table_audit import TableAudit


def side(load: int, topic_id: str = "a1") -> TableAudit:
    """A table after so many loads, of ten records each."""
    found = SimpleNamespace(state=AuditState("t", str(load)), next_offsets={0: 10 * load}, topic_id=topic_id)
    return cast("TableAudit", found)


def test_ends_are_asked_for_while_no_load_is_committed() -> None:
    looks = iter([side(1), side(2), side(3), side(3)])
    ends = iter([{0: 5}, {0: 7}, {0: 9}])
    seen, audit_ends = table_and_ends(lambda: next(looks), lambda: next(ends))
    assert seen.state is not None
    assert (seen.state.load_id, audit_ends) == ("3", {0: 9})
    assert next(looks, None) is None


class Log:
    """A topic of two partitions."""

    def __init__(self, topic_id: str = "a1") -> None:
        self.topic_id = topic_id

    def describe_topics(self, topics: list[str]) -> list[Any]:
        if not self.topic_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "none", subject=topics[0])
        partitions = [SimpleNamespace(partition=0), SimpleNamespace(partition=1)]
        return [SimpleNamespace(id=self.topic_id, partitions=partitions)]

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 25)

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 4)


@pytest.mark.parametrize(
    ("topic_id", "expected"),
    [("a1", {0: 15, 1: 21}), ("b2", {}), ("", {})],
    ids=["what the log has behind the last load", "another topic of that name", "no topic"],
)
def test_what_a_table_may_lack_is_what_the_log_has_still(topic_id: str, expected: dict[int, int]) -> None:
    assert _behind(cast("Admin", Log(topic_id)), "clicks", side(1)) == expected
