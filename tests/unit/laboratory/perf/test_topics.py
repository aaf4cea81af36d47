"""The topic of a run, and the wait for what is stored."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import TimedOutError
from barnabas.laboratory.perf.topics import STORED_PATIENCE_S, Leader, TopicSpec, await_stored, leaders_of, run_topic


class FakeAdmin:
    def __init__(self, *topics: str) -> None:
        self.topics = dict.fromkeys(topics, 3)
        self.deletion_error: Exception | None = None
        self.leaders = [0, 1, 0]

    def list_topics(self):
        return list(self.topics)

    def create_topic(self, name, partitions, _replication_factor, _config):
        self.topics[name] = partitions

    def delete_topic(self, name):
        if self.deletion_error:
            raise self.deletion_error
        del self.topics[name]

    def describe_topics(self, names):
        return [
            SimpleNamespace(
                partitions=[
                    SimpleNamespace(partition=each, leader=self.leaders[each % 3]) for each in range(self.topics[name])
                ]
            )
            for name in names
        ]

    def brokers(self):
        return [SimpleNamespace(id=0, host="a", port=1), SimpleNamespace(id=1, host="b", port=2)]


def test_new_topic_is_deleted_also_after_an_error() -> None:
    admin = FakeAdmin()

    def interrupted_run() -> None:
        with run_topic(admin, TopicSpec(partitions=4), lambda: "new") as topic:
            assert (topic.name, topic.partitions, list(admin.topics)) == ("new", 4, ["new"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_run()
    assert not admin.topics


@pytest.mark.parametrize("plan", [TopicSpec(keep=True), TopicSpec(name="new")])
def test_topic_that_is_named_or_kept_stays(plan: TopicSpec) -> None:
    admin = FakeAdmin()
    with run_topic(admin, plan, lambda: "new"):
        pass
    assert list(admin.topics) == ["new"]


def test_topic_that_exists_is_used_as_it_is() -> None:
    admin = FakeAdmin("clicks")
    with run_topic(admin, TopicSpec(name="clicks", partitions=6), lambda: "new") as topic:
        assert topic.partitions == 3
    assert list(admin.topics) == ["clicks"]


def test_figures_survive_when_the_topic_cannot_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    admin = FakeAdmin()
    admin.deletion_error = TimedOutError("nobody answers")
    with run_topic(admin, TopicSpec(), lambda: "new"):
        pass
    assert "cannot delete topic new: nobody answers" in caplog.text


def test_partitions_are_grouped_by_their_leaders() -> None:
    assert leaders_of(FakeAdmin("clicks"), "clicks") == (Leader("a", 1, (0, 2)), Leader("b", 2, (1,)))


def test_wait_ends_when_all_is_stored() -> None:
    clock = ManualClock()
    growing = iter([10, 50, 100])
    assert await_stored(lambda: next(growing), 100, clock, clock.advance) == 100


def test_wait_is_longer_while_the_log_grows_and_ends_when_it_does_not() -> None:
    clock = ManualClock()
    begun_s = clock.monotonic()

    def stored() -> int:
        return min(60, int(clock.monotonic() - begun_s))

    assert await_stored(stored, 100, clock, clock.advance) == 60
    assert 60 + STORED_PATIENCE_S <= clock.monotonic() - begun_s < 62 + STORED_PATIENCE_S
