"""Settings that follow a topic, where the target refuses some and somebody else changes others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.admin.configs import ConfigResource, ConfigSetting, ConfigSource, ConfigSynonym, ConfigType
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError
from barnabas.mirror import topic_config_sync
from barnabas.mirror.events import Event, EventReporter
from barnabas.mirror.ledger import TopicSettings
from barnabas.mirror.topic_config_rules import SettingsFilter
from barnabas.mirror.topic_config_sync import REFUSED_AGAIN_S, TopicConfigSync

DEFAULTS = {"retention.ms": "604800000", "cleanup.policy": "delete", "max.message.bytes": "1048588"}
INVALID = ApiError(ErrorCode.INVALID_CONFIG, "unknown")


class Ledger:
    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}

    def find(self, kind: Any, key: str) -> Any:
        return kind.read(self.entries[key]) if key in self.entries else None

    async def write(self, entries: Mapping[str, Any]) -> None:
        for key, value in entries.items():
            self.entries[key] = json.loads(json.dumps(value))


class World:
    """Two clusters with a topic each, and a mirror that looks at their settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source: dict[str, str] = {}
        self.source_brokers = dict(DEFAULTS)
        self.target: dict[str, str] = {}
        self.refused: dict[str, BarnabasError] = {}
        self.hidden: BarnabasError | None = None
        self.events: list[Event] = []
        self.told = EventReporter(self.events.append)
        self.ledger = Ledger()
        self.clock = ManualClock()
        self.offers = 0
        monkeypatch.setattr(topic_config_sync, "describe_config", self._describe)
        monkeypatch.setattr(topic_config_sync, "alter_config", self._alter)
        self.begin()
        self.ledger.entries[TopicSettings.key("a.t")] = {"format": 1, "target_topic_id": "id", "left": {}}

    def begin(self) -> None:
        """Start another mirror."""
        source: Any = SimpleNamespace(name="source", cluster="source")
        target: Any = SimpleNamespace(name="target", cluster="target")
        ledger: Any = self.ledger
        self.following = TopicConfigSync(source, target, ledger, SettingsFilter(), self.clock, self.told)

    def follow(self) -> bool:
        return asyncio.run(self.following.follow("t", "a.t", "id"))

    def said(self, event: str) -> list[Event]:
        return [each for each in self.events if each["event"] == event]

    async def _describe(self, cluster: str, _resource: ConfigResource) -> dict[str, ConfigSetting]:
        if self.hidden is not None:
            raise self.hidden
        own, brokers = (self.source, self.source_brokers) if cluster == "source" else (self.target, DEFAULTS)
        found = {}
        for name in {*own, *brokers}:
            places = [(ConfigSource.TOPIC, own[name])] if name in own else []
            places += [(ConfigSource.STATIC_BROKER, brokers[name])] if name in brokers else []
            synonyms = tuple(ConfigSynonym(name, value, source) for source, value in places)
            found[name] = ConfigSetting(name, places[0][1], places[0][0], ConfigType.STRING, "", False, False, synonyms)
        return found

    async def _alter(
        self, cluster: str, _resource: ConfigResource, to_set: Mapping[str, str], to_unset: Iterable[str]
    ) -> None:
        assert cluster == "target"
        self.offers += 1
        for name in [*to_set, *to_unset]:
            if name in self.refused:
                raise self.refused[name]
        self.target.update(to_set)
        for name in to_unset:
            del self.target[name]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_settings_follow_and_go_again(world: World) -> None:
    world.source = {"retention.ms": "1", "segment.ms": "2"}
    assert not world.follow()
    assert world.target == world.source
    world.source = {"segment.ms": "3", "cleanup.policy": "compact"}
    assert world.follow(), "it is compacted"
    assert world.target == world.source


def test_what_the_sources_brokers_set_follows_and_goes_again(world: World) -> None:
    world.source_brokers |= {"retention.ms": "-1", "max.message.bytes": "5000000"}
    world.follow()
    assert world.target == {"retention.ms": "-1"}
    world.source_brokers["retention.ms"] = DEFAULTS["retention.ms"]
    world.follow()
    assert world.target == {}


def test_settings_that_are_refused_keep_no_other_from_following_and_are_told_once(world: World) -> None:
    world.source = {"retention.ms": "1", "segment.bytes": "5", "segment.ms": "2"}
    world.refused = {"segment.bytes": INVALID, "retention.ms": INVALID}
    for _ in range(3):
        world.follow()
    assert world.target == {"segment.ms": "2"}
    assert [each["about"] for each in world.said("setting refused")] == ["t retention.ms", "t segment.bytes"]
    assert world.following.refused == ["t retention.ms", "t segment.bytes"]
    assert list(world.told.current_problems) == ["t retention.ms"], "records may live shorter, which is a trouble"
    offers = world.offers
    world.follow()
    assert world.offers == offers

    world.refused.clear()
    world.clock.advance(REFUSED_AGAIN_S)
    world.follow()
    assert world.target == world.source
    assert world.following.refused == []
    assert not world.told.current_problems


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_somebody_else_sets_in_the_target_stays_and_is_told_once(world: World, is_restarted: bool) -> None:
    world.source = {"retention.ms": "1"}
    world.follow()
    world.target |= {"max.message.bytes": "5000000", "retention.ms": "7"}
    if is_restarted:
        world.begin()
    for _ in range(2):
        world.source["segment.ms"] = "2"
        world.follow()
    assert world.target == {"max.message.bytes": "5000000", "retention.ms": "7", "segment.ms": "2"}
    assert [(each["setting"], each["value"]) for each in world.said("setting kept")] == [("retention.ms", "7")]


def test_topic_that_an_earlier_release_mirrors_has_only_settings_of_that_mirror(world: World) -> None:
    world.ledger.entries.clear()
    world.source = {"retention.ms": "2"}
    world.target = {"retention.ms": "1", "segment.ms": "5", "min.insync.replicas": "2"}
    world.follow()
    assert world.target == {"retention.ms": "2", "min.insync.replicas": "2"}


def test_mirror_that_ends_in_the_middle_of_a_change_knows_its_own_value_again(world: World) -> None:
    world.source = {"retention.ms": "1"}
    world.follow()
    world.source = {"retention.ms": "2"}
    world.refused = {"retention.ms": TimedOutError("no answer")}
    with pytest.raises(TimedOutError):
        world.follow()
    world.target = {"retention.ms": "2"}  # it came to that after all
    world.refused.clear()
    world.begin()
    world.source = {"retention.ms": "3"}
    world.follow()
    assert world.target == {"retention.ms": "3"}


def test_settings_that_nobody_may_see_keep_no_records_from_following(world: World) -> None:
    world.hidden = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t")
    assert world.follow(), "it may be compacted"
    assert [each["event"] for each in world.events] == ["not followed"]
    world.hidden = TimedOutError("no answer")
    with pytest.raises(TimedOutError):
        world.follow()
