"""Which topics a client asks for: each interest ends, and only who waits for a topic creates it."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import ClusterView, PartitionView, TopicInterest, TopicView

IDLE_S = 300.0
NOTHING = ClusterView()


def view_of(*topics: str) -> ClusterView:
    return ClusterView(topics={name: TopicView(name, partitions=(PartitionView(0, 1),)) for name in topics})


class Records:
    """A producer that has records for some topics."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.used_at_s: dict[str, float] = {}

    def topics_to_create(self) -> set[str]:
        return set(self.waiting)

    def topics_in_use(self, since_s: float) -> set[str]:
        return self.waiting | {topic for topic, at_s in self.used_at_s.items() if at_s > since_s}


def test_topic_that_is_not_used_any_more_leaves():
    interest = TopicInterest(IDLE_S)
    interest.use(["a"], 0.0)
    interest.use(["b"], 200.0)
    assert interest.wanted(NOTHING, 299.0) == ({"a", "b"}, set())
    assert interest.wanted(NOTHING, 300.0) == ({"b"}, set())
    interest.use(["a"], 301.0)
    assert interest.wanted(NOTHING, 499.0) == ({"a", "b"}, set())


def test_only_who_waits_for_a_topic_creates_it():
    interest = TopicInterest(IDLE_S)
    interest.wait_for("a")
    interest.wait_for("a")
    assert interest.wanted(NOTHING, 0.0) == (set(), {"a"})
    interest.stop_waiting_for("a")
    assert interest.wanted(NOTHING, 0.0) == (set(), {"a"})
    assert interest.wanted(view_of("a"), 0.0) == ({"a"}, set())
    interest.use(["a"], 0.0)
    interest.stop_waiting_for("a")
    assert interest.wanted(NOTHING, 0.0) == ({"a"}, set()), "it was deleted, and nobody waits for it"


def test_deleted_topic_is_created_again_for_records_that_wait_and_not_for_those_that_were_sent():
    records = Records()
    interest = TopicInterest(IDLE_S, records)
    records.used_at_s["a"] = 10.0
    assert interest.wanted(NOTHING, 20.0) == ({"a"}, set())
    records.waiting.add("a")
    assert interest.wanted(NOTHING, 20.0) == (set(), {"a"})
    assert interest.wanted(view_of("a"), 20.0) == ({"a"}, set())
    records.waiting.clear()
    assert interest.wanted(NOTHING, 310.0) == (set(), set())


@pytest.mark.parametrize("auto_creates", [False, True])
def test_subscription_ends_and_creates_a_topic_once_at_most(auto_creates: bool):
    interest = TopicInterest(IDLE_S)
    interest.hold(["a", "b"], auto_creates=auto_creates)
    created = {"a", "b"} if auto_creates else set[str]()
    assert interest.wanted(NOTHING, 0.0) == ({"a", "b"} - created, created)
    assert interest.wanted(view_of("a", "b"), 1.0) == ({"a", "b"}, set())
    assert interest.wanted(NOTHING, 1e6) == ({"a", "b"}, set()), "deleted, and held as long as the subscription"
    interest.hold(["b", "c"], auto_creates=auto_creates)
    created = {"c"} if auto_creates else set[str]()
    assert interest.wanted(view_of("b"), 1e6) == ({"b", "c"} - created, created)
    interest.hold([], auto_creates=auto_creates)
    assert interest.wanted(NOTHING, 1e6) == (set(), set())


def test_interest_in_all_topics_ends_with_the_pattern_that_has_it():
    interest = TopicInterest(IDLE_S)
    interest.hold(None, auto_creates=False)
    assert interest.wanted(NOTHING, 0.0).known is None
    interest.hold(["a"], auto_creates=True)
    assert interest.wanted(view_of("a", "b"), 0.0) == ({"a"}, set())
