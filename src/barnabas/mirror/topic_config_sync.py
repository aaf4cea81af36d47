"""Copies topic settings to the target. A failure never stops the mirroring of records.

The ledger records the values that mirrors have set on a target topic. Another client has set a value that is not in the
ledger, so the mirror keeps this value. Before a change the mirror writes the old and the new value to the ledger, and
after the change the final value. So the next mirror can identify values of mirrors even if this mirror is killed during
the change.
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
"""The time in seconds after which the mirror retries a setting that the target has rejected."""


class TopicConfigSync:
    """Copies the settings of topics, one topic at a time.

    :param ledger: the ledger of the target cluster.
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
        """The rejected value and the time of the rejection, by topic and setting."""
        self._kept: dict[str, Mapping[str, Value]] = {}
        """The settings reported as kept in the target, by topic."""

    @property
    def refused(self) -> list[str]:
        """The settings that the target rejects, each as `topic setting`."""
        return [f"{topic} {name}" for topic, each in sorted(self._refused.items()) for name in sorted(each)]

    def forget(self, topic: str) -> None:
        """Drop the state of a topic that is no longer mirrored."""
        for name in self._refused.pop(topic, ()):
            self._events.forget(_about(topic, name))
        self._kept.pop(topic, None)

    async def at_creation(self, topic: str) -> dict[str, str]:
        """Return the settings for the creation of the target's topic. `follow` sets the other settings before the first
        record is mirrored."""
        if self._choice.follows is SyncRule.NONE:
            return {}
        settings = await self._settings_of(self._source, topic, topic)
        return {name: value for name, value in followed(own(settings or {})).items() if self._choice.matches(name)}

    async def follow(self, topic: str, target_topic: str, target_topic_id: str) -> bool:
        """Copy the settings of the source topic to the target topic. Return whether the source topic is or may be
        compacted.

        :raises BarnabasError: a cluster does not respond.
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
        """Return all settings of a topic; return None and report a problem if the cluster denies the request."""
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
            # A mirror of an earlier release claimed the topic and wrote no settings entry. It has set all current
            # values.
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
        """Apply the changes; if the target rejects them together, apply them one by one."""
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
        what = "the target refuses to unset it" if value is None else f"the target refuses {name}={value}"
        reason = f"{what}: {refusal}; records are mirrored without it"
        if name in LIFETIME:
            self._events.problem(
                about, "setting refused", f"{reason}, and may be retained for less or more time than in the source"
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
                    reason="another client changed it in the target; the mirror keeps that value",
                )
        self._kept[topic] = kept


def _about(topic: str, name: str) -> str:
    return f"{topic} {name}"
