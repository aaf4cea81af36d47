"""Rounds over topics and groups, of which some cannot be looked at now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.cluster import TopicView
from barnabas.errors import ApiError, BarnabasError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.mirror import group_offset_sync
from barnabas.mirror.events import Event, EventReporter
from barnabas.mirror.group_offset_sync import GroupOffsetSync
from barnabas.mirror.name_filter import NameFilter
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import PartitionLink
from barnabas.mirror.topic_sync import TopicSync
from barnabas.model import OffsetAndMetadata, TopicPartition

CLICKS = TopicPartition("clicks", 0)
LATE = TimedOutError("no leader")
Fails = dict[str, BarnabasError]


def following(fails: Fails) -> tuple[list[str], Callable[[str], Coroutine[Any, Any, None]]]:
    """Return the names of topics that were looked at, and what looks at some."""
    side: Any = SimpleNamespace(cluster=None)
    ledger: Any = None
    told = EventReporter(lambda _event: None)
    settings: Any = None
    made = TopicSync(
        side,
        side,
        ledger,
        ledger,
        NameFilter([".*"]),
        "",
        None,
        settings,
        told,
        lambda _topic: None,
        lambda _name: None,
    )
    seen: list[str] = []

    async def follow(topic: Any) -> None:
        seen.append(topic.name)
        if topic.name in fails:
            raise fails[topic.name]

    made._follow = follow  # type: ignore[method-assign]
    return seen, lambda names: made._follow_all([TopicView(name) for name in names])


def test_topic_that_cannot_be_looked_at_does_not_keep_the_others_waiting() -> None:
    seen, look_at = following({"b": LATE})
    with pytest.raises(TimedOutError, match="no leader"):
        asyncio.run(look_at("abcd"))
    assert seen == ["a", "b", "c", "d"]


def test_round_in_which_many_fail_ends_and_the_next_one_begins_behind_them() -> None:
    seen, look_at = following(dict.fromkeys("abcde", LATE))
    for _ in range(2):
        with pytest.raises(TimedOutError):
            asyncio.run(look_at("abcdef"))
    assert "".join(seen) == "abc" + "defa"


def test_cluster_that_is_away_ends_the_round_at_once() -> None:
    seen, look_at = following({"a": DisconnectedError("nobody")})
    with pytest.raises(DisconnectedError):
        asyncio.run(look_at("ab"))
    assert seen == ["a"]


def test_group_that_cannot_be_followed_is_told_and_the_others_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    side: Any = SimpleNamespace(cluster=None)
    ledger: Any = None
    events: list[Event] = []
    made = GroupOffsetSync(side, side, ledger, NameFilter([".*"]), {}, EventReporter(events.append))
    refused = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group a")
    fails: Fails = {"a": refused, "b": LATE}
    seen: list[str] = []

    async def groups(_cluster: object) -> list[Any]:
        return [SimpleNamespace(group=name) for name in "abc"]

    async def follow(group: str) -> None:
        seen.append(group)
        if group in fails:
            raise fails[group]

    monkeypatch.setattr(group_offset_sync, "list_groups", groups)
    monkeypatch.setattr(made, "_follow", follow)
    with pytest.raises(TimedOutError, match="no leader"):
        asyncio.run(made.round())
    assert seen == ["a", "b", "c"]
    assert [(each["about"], each["event"]) for each in events] == [
        ("group a", "not followed"),
        ("group b", "not followed"),
    ]
    del fails["b"]
    asyncio.run(made.round())


class Groups:
    """A group that has committed in two clusters, of which the second has a limit for metadata."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.committed = {"source": {CLICKS: OffsetAndMetadata(50, "s")}, "target": dict[Any, OffsetAndMetadata]()}
        self.metadata_max = 100
        self.events: list[Event] = []
        self.entries: dict[str, Any] = {}
        self.begin()
        monkeypatch.setattr(group_offset_sync, "list_groups", self._groups)
        monkeypatch.setattr(group_offset_sync, "committed_offsets", self._offsets)
        monkeypatch.setattr(group_offset_sync, "commit_offsets", self._commit)

    def begin(self) -> None:
        copy = PartitionCopy(CLICKS, 5)
        copy.place(OffsetMap.of([(0, 0, 100)]), None, 0.0)
        links = {CLICKS: PartitionLink(CLICKS, CLICKS, b"id", copy)}
        sides: list[Any] = [SimpleNamespace(name=name, cluster=name) for name in ("source", "target")]
        ledger: Any = self
        self.following = GroupOffsetSync(*sides, ledger, NameFilter([".*"]), links, EventReporter(self.events.append))

    def round(self) -> tuple[OffsetAndMetadata, OffsetAndMetadata]:
        asyncio.run(self.following.round())
        return self.committed["source"][CLICKS], self.committed["target"][CLICKS]

    def find(self, kind: Any, key: str) -> Any:
        return kind.read(self.entries[key]) if key in self.entries else None

    async def write(self, entries: dict[str, Any]) -> None:
        self.entries |= json.loads(json.dumps(entries))

    async def _groups(self, _cluster: str) -> list[Any]:
        return [SimpleNamespace(group="g")]

    async def _offsets(self, cluster: str, _group: str, _partitions: object) -> dict[Any, OffsetAndMetadata]:
        return dict(self.committed[cluster])

    async def _commit(self, cluster: str, _group: str, offsets: dict[Any, OffsetAndMetadata]) -> None:
        if any(len(each.metadata) > self.metadata_max for each in offsets.values()):
            raise ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        self.committed[cluster] |= offsets


def test_metadata_of_commits_follows_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Groups(monkeypatch)
    assert world.round() == (OffsetAndMetadata(50, "s"), OffsetAndMetadata(50, "s"))
    world.committed["target"][CLICKS] = OffsetAndMetadata(60, "t")
    assert world.round() == (OffsetAndMetadata(60, "t"), OffsetAndMetadata(60, "t"))


@pytest.mark.parametrize("moved", ["source", "target"])
def test_metadata_follows_where_the_offset_stays(monkeypatch: pytest.MonkeyPatch, moved: str) -> None:
    world = Groups(monkeypatch)
    world.round()
    world.round()
    world.committed[moved][CLICKS] = OffsetAndMetadata(50, "later")
    assert world.round() == (OffsetAndMetadata(50, "later"), OffsetAndMetadata(50, "later"))


def test_metadata_that_an_earlier_release_has_dropped_is_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Groups(monkeypatch)
    world.round()
    world.committed["target"][CLICKS] = OffsetAndMetadata(50)
    world.begin()
    assert world.round() == (OffsetAndMetadata(50, "s"), OffsetAndMetadata(50, "s"))


def test_metadata_that_is_too_long_for_a_cluster_keeps_no_offset_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Groups(monkeypatch)
    world.metadata_max = 0
    for _ in range(3):
        assert world.round() == (OffsetAndMetadata(50, "s"), OffsetAndMetadata(50))
    assert [each["event"] for each in world.events] == ["left out"]
