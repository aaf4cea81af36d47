"""A user's view of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.share_groups import ShareGroupOffset
from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.clock import SYSTEM_CLOCK
from barnabas.console import cluster_view
from barnabas.console.cluster_view import ClusterView
from barnabas.console.elections import UNCLEAN
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from tests.support.console_pages import SHARE_GROUPS, FakeAdmin, topic


def test_pages_do_not_wait_for_brokers_that_never_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "CALL_S_MAX", 0.01)

    async def scenario() -> None:
        view = ClusterView({"bootstrap.servers": "127.0.0.1:1"}, SYSTEM_CLOCK)
        try:
            with pytest.raises(TimeoutError):
                await view.within(asyncio.sleep(600))
        finally:
            await view.close()

    asyncio.run(scenario())


def test_partitions_without_leader_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        view = ClusterView({"bootstrap.servers": "127.0.0.1:1"}, SYSTEM_CLOCK)
        partitions = tuple(PartitionDescription(number, leader, (1,), (1,)) for number, leader in ((0, 1), (1, -1)))

        async def topics() -> dict[str, TopicDescription]:
            return {"clicks": TopicDescription("clicks", "", partitions)}

        monkeypatch.setattr(view, "topics", topics)
        asked = [TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("deleted", 0)]
        try:
            assert await view.with_leader(asked) == [TopicPartition("clicks", 0)]
        finally:
            await view.close()

    asyncio.run(scenario())


class Clock:
    """A clock that advances by a minute with each look, so that nothing stays cached."""

    def __init__(self) -> None:
        self._now_s = 100.0

    def monotonic(self) -> float:
        self._now_s += 61
        return self._now_s

    def __getattr__(self, name: str) -> object:
        return getattr(SYSTEM_CLOCK, name)


def on_view(admin: FakeAdmin, check: Callable[[ClusterView], Awaitable[None]]) -> None:
    asyncio.run(check(ClusterView({}, Clock(), admin)))  # type: ignore[arg-type]


def test_partitions_without_a_leader_do_not_delay_the_offsets_of_others() -> None:
    admin = FakeAdmin()
    admin.topics = [topic("t", PartitionDescription(0, 1, (1,), (1,)), PartitionDescription(1, -1, (2,), (2,)))]

    async def check(view: ClusterView) -> None:
        await view.sample()
        assert ("end_offsets", [TopicPartition("t", 0)]) in admin.calls

    on_view(admin, check)


def test_outage_of_a_partition_does_not_change_the_number_of_records() -> None:
    admin = FakeAdmin()
    admin.ends = {TopicPartition("t", 0): 100, TopicPartition("t", 1): 50}

    async def check(view: ClusterView) -> None:
        for leader in (2, -1, 2):
            admin.topics = [
                topic("t", PartitionDescription(0, 1, (1,), (1,)), PartitionDescription(1, leader, (2,), (2,)))
            ]
            await view.sample()
            (row,) = await view.rows()
            assert (row.records, view.ends.newest("t")) == (150, 150.0)

    on_view(admin, check)


def test_broker_that_hangs_hides_only_its_own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "ANSWER_S_MAX", 0.01)
    admin = FakeAdmin()
    admin.groups = [GroupListing(name, "Stable", "classic", "consumer") for name in ("b", "a")]
    admin.hanging = (3,)

    async def check(view: ClusterView) -> None:
        assert [each.group for each in await view.groups()] == ["a", "b"]
        assert view.groups_problem == "The groups of broker 3 are missing: The brokers did not answer in time"
        admin.hanging = ()
        await view.groups()
        assert view.groups_problem == ""

    on_view(admin, check)


def test_groups_fail_if_no_broker_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "ANSWER_S_MAX", 0.01)
    admin = FakeAdmin()
    admin.hanging = (1,)

    async def check(view: ClusterView) -> None:
        with pytest.raises(TimeoutError):
            await view.groups()

    on_view(admin, check)


def test_lag_of_share_groups_is_that_of_the_broker() -> None:
    admin = FakeAdmin()
    admin.groups = [GroupListing(name, "Stable", kind, kind) for name, kind in (("a", "share"), ("b", "classic"))]
    admin.versions = SHARE_GROUPS
    admin.share_offsets = {
        TopicPartition("t", 0): ShareGroupOffset(bytes(16), 2, 0, 5),
        TopicPartition("t", 1): ShareGroupOffset(bytes(16), None, 0, None),
    }

    async def check(view: ClusterView) -> None:
        await view.watch()
        await view.sample()
        assert view.lags.newest("a") == 5
        assert ("offsets_of_groups", ["b"]) in admin.calls
        admin.failures["share_group_offsets"] = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        await view.sample()
        assert view.lags.newest("a") is None

    on_view(admin, check)


def test_eligible_leader_replicas_are_read_for_topics_out_of_sync() -> None:
    admin = FakeAdmin()
    admin.versions = {"DescribeTopicPartitions": range(1)}
    admin.topics = [
        topic("fine", PartitionDescription(0, 1, (1, 2), (1, 2))),
        topic("ailing", PartitionDescription(0, -1, (1, 2), ())),
    ]
    admin.eligible = {TopicPartition("ailing", 0): (2,)}

    async def check(view: ClusterView) -> None:
        await view.watch()
        assert ("eligible_leader_replicas", ["ailing"]) in admin.calls
        admin.topics = [topic("ailing", PartitionDescription(0, 2, (1, 2), (2,), leader_epoch=1))]
        await view.watch()
        assert (view.elections.count(), view.elections.count(UNCLEAN)) == (1, 0)

    on_view(admin, check)


def test_elections_are_seen_without_the_versions_of_the_brokers() -> None:
    admin = FakeAdmin()
    admin.failures["api_versions"] = ApiError(ErrorCode.UNSUPPORTED_VERSION)
    admin.topics = [topic("t", PartitionDescription(0, 1, (1, 2), (1, 2), leader_epoch=0))]

    async def check(view: ClusterView) -> None:
        await view.watch()
        admin.topics = [topic("t", PartitionDescription(0, 2, (1, 2), (1, 2), leader_epoch=1))]
        await view.watch()
        assert (view.elections.count(), view.has_transactions) == (1, False)

    on_view(admin, check)


def test_new_versions_of_the_brokers_are_seen() -> None:
    admin = FakeAdmin()

    async def check(view: ClusterView) -> None:
        await view.watch()
        assert not view.has_transactions
        admin.versions = {"ListTransactions": range(1), "DescribeTransactions": range(1)}
        await view.watch()
        assert view.has_transactions

    on_view(admin, check)
