"""Synchronises the settings of topics to the target. A failure never stops the mirroring of records.

The ledger says which values mirrors have left at a topic of the target: a value that is none of these is somebody
else's, and stays. It is written before a change, with the old and the new value, and after it, so that a mirror that
is killed in between knows its own values again.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.admin.configs import ConfigResource, ConfigSetting, alter_config, describe_config
from barnabas.clock import Clock
from barnabas.errors import BarnabasError
from barnabas.mirror.events import EventReporter
from barnabas.mirror.ledger import TopicSettings
from barnabas.mirror.ledger_topic import LedgerTopic
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.mirror.topic_config_rules import (
    CLEANUP_POLICY,
    LIFETIME,
    SettingsChange,
    SettingsFilter,
    SyncRule,
    Value,
    change,
    followed,
    own,
    wanted,
)

REFUSED_AGAIN_S = 600.0
"""So long after the target has refused a value it is offered once more."""


class TopicConfigSync:
    """Follows the settings of topics, each when its turn comes.

    :param ledger: of the target.
    """

    def __init__(
        self,
        source: MirroredCluster,
        target: MirroredCluster,
        ledger: LedgerTopic,
        choice: SettingsFilter,
        clock: Clock,
        events: EventReporter,
    ) -> None:
        self._source, self._target = source, target
        self._ledger = ledger
        self._choice = choice
        self._clock = clock
        self._events = events
        self._refused: dict[str, dict[str, tuple[Value, float]]] = {}
        """By topic and setting: the value that the target did not take, and when."""
        self._kept: dict[str, Mapping[str, Value]] = {}
        """By topic: what was said to stay."""

    @property
    def refused(self) -> list[str]:
        """The settings that the target does not take, each with its topic."""
        return [f"{topic} {name}" for topic, each in sorted(self._refused.items()) for name in sorted(each)]

    def forget(self, topic: str) -> None:
        """The topic is not mirrored any more."""
        for name in self._refused.pop(topic, ()):
            self._events.forget(_about(topic, name))
        self._kept.pop(topic, None)

    async def at_creation(self, topic: str) -> dict[str, str]:
        """Return what the target's topic is created with; `follow` brings the rest, before any record comes."""
        if self._choice.follows is SyncRule.NONE:
            return {}
        settings = await self._settings_of(self._source, topic, topic)
        return {name: value for name, value in followed(own(settings or {})).items() if self._choice.matches(name)}

    async def follow(self, topic: str, target_topic: str, target_topic_id: str) -> bool:
        """Give the target's topic the settings of the source's; return whether the source's is, or may be, compacted.

        :raises BarnabasError: one of the clusters does not answer now.
        """
        source = await self._settings_of(self._source, topic, topic)
        if source is None:
            return True
        if self._choice.follows is not SyncRule.NONE:
            target = await self._settings_of(self._target, topic, target_topic)
            if target is not None:
                wants = wanted(source, target, self._choice)
                await self._bring(topic, target_topic, target_topic_id, wants, own(target))
        policy = source.get(CLEANUP_POLICY)
        return policy is None or "compact" in (policy.value or "")

    async def _settings_of(self, side: MirroredCluster, topic: str, name: str) -> Mapping[str, ConfigSetting] | None:
        """Return all settings of a topic; None: the cluster does not show them, which is told."""
        about = f"settings of {topic} in the {side.name}"
        try:
            found = await describe_config(side.cluster, ConfigResource.topic(name))
        except BarnabasError as error:
            if error.retriable:
                raise
            self._events.problem(about, "not followed", str(error))
            return None
        self._events.recovered(about)
        return found

    async def _bring(
        self, topic: str, target_topic: str, target_topic_id: str, wants: Mapping[str, str], there: Mapping[str, str]
    ) -> None:
        key = TopicSettings.key(target_topic)
        entry = self._ledger.find(TopicSettings, key)
        if entry is None or entry.target_topic_id != target_topic_id:
            # A mirror of an earlier release has claimed the topic: what is set there is what that mirror has set.
            entry = TopicSettings.of(target_topic_id, {name: [value] for name, value in followed(there).items()})
        ours = {name: values for name, values in entry.left.items() if self._choice.matches(name)}
        found = change(wants, there, ours, self._lately_refused(topic))
        self._report_kept(topic, found.kept)
        changed = {**found.to_set, **dict.fromkeys(found.to_unset)}
        if changed:
            before = {name: {*entry.left.get(name, (None,)), there.get(name), value} for name, value in changed.items()}
            await self._ledger.write({key: entry.with_values(before).value()})
            await self._alter(topic, target_topic, found, changed)
        refused = self._refused.get(topic, {})
        left = {name: {there.get(name) if name in refused else value} for name, value in changed.items()}
        settled = [name for name in wants if name in there and name not in changed and name not in found.kept]
        left |= {name: {there[name]} for name in settled if name not in refused}
        entry = entry.with_values(left)
        if changed or entry != self._ledger.find(TopicSettings, key):
            await self._ledger.write({key: entry.value()})

    def _lately_refused(self, topic: str) -> dict[str, Value]:
        now_s = self._clock.monotonic()
        return {
            name: value
            for name, (value, at_s) in self._refused.get(topic, {}).items()
            if now_s - at_s < REFUSED_AGAIN_S
        }

    async def _alter(self, topic: str, target_topic: str, found: SettingsChange, changed: Mapping[str, Value]) -> None:
        """Make the changes, those that the target takes where it does not take all."""
        resource = ConfigResource.topic(target_topic)
        refusals: dict[str, str] = {}
        try:
            await alter_config(self._target.cluster, resource, found.to_set, found.to_unset)
        except BarnabasError as error:
            if error.retriable:
                raise
            for name, value in changed.items():
                to_set, to_unset = ({}, [name]) if value is None else ({name: value}, [])
                try:
                    await alter_config(self._target.cluster, resource, to_set, to_unset)
                except BarnabasError as refusal:
                    if refusal.retriable:
                        raise
                    refusals[name] = str(refusal)
        done = {name: value for name, value in found.to_set.items() if name not in refusals}
        undone = [name for name in found.to_unset if name not in refusals]
        if done or undone:
            self._events.report(topic, "settings", set=done, unset=undone)
        for name, value in changed.items():
            self._note(topic, name, value, refusals.get(name))

    def _note(self, topic: str, name: str, value: Value, refusal: str | None) -> None:
        refused = self._refused.setdefault(topic, {})
        about = _about(topic, name)
        if refusal is None:
            if refused.pop(name, None) is not None:
                self._events.recovered(about)
            if not refused:
                del self._refused[topic]
            return
        before = refused.get(name)
        refused[name] = value, self._clock.monotonic()
        what = "the target does not unset it" if value is None else f"the target refuses {name}={value}"
        reason = f"{what}: {refusal}; records go on without it"
        if name in LIFETIME:
            self._events.problem(
                about, "setting refused", f"{reason}, and may live shorter or longer than in the source"
            )
        elif before is None or before[0] != value:
            self._events.report(about, "setting refused", reason=reason)

    def _report_kept(self, topic: str, kept: Mapping[str, Value]) -> None:
        before = self._kept.get(topic, {})
        for name, value in kept.items():
            if name not in before or before[name] != value:
                self._events.report(
                    topic,
                    "setting kept",
                    setting=name,
                    value=value,
                    reason="somebody else has changed it in the target; the mirror leaves it",
                )
        self._kept[topic] = kept


def _about(topic: str, name: str) -> str:
    return f"{topic} {name}"
