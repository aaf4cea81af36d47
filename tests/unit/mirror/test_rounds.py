"""Rounds over topics and groups, of which some cannot be looked at now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.metadata import TopicView
from barnabas.errors import BarnabasError, DisconnectedError, ErrorCode, KafkaError, TimedOutError
from barnabas.mirror import group_following
from barnabas.mirror.events import Event, Told
from barnabas.mirror.group_following import GroupFollowing
from barnabas.mirror.topic_choice import Choice
from barnabas.mirror.topic_following import TopicFollowing

LATE = TimedOutError("no leader")
Fails = dict[str, BarnabasError]


def following(fails: Fails) -> tuple[list[str], Callable[[str], Coroutine[Any, Any, None]]]:
    """Return the names of topics that were looked at, and what looks at some."""
    side: Any = SimpleNamespace(cluster=None)
    ledger: Any = None
    told = Told(lambda _event: None)
    settings: Any = None
    made = TopicFollowing(
        side, side, ledger, ledger, Choice([".*"]), "", None, settings, told, lambda _topic: None, lambda _name: None
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
    made = GroupFollowing(side, side, ledger, Choice([".*"]), {}, Told(events.append))
    refused = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group a")
    fails: Fails = {"a": refused, "b": LATE}
    seen: list[str] = []

    async def groups(_cluster: object) -> list[Any]:
        return [SimpleNamespace(group=name) for name in "abc"]

    async def follow(group: str) -> None:
        seen.append(group)
        if group in fails:
            raise fails[group]

    monkeypatch.setattr(group_following, "list_groups", groups)
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
