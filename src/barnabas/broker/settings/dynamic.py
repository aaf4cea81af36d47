"""Dynamic settings of brokers and groups, which are stored in the metadata store and take effect immediately.

Used from the event loop's thread. Reads and writes of the metadata store run on the metadata store's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.settings.in_force import (
    KEEP_RECORDS,
    BrokerSettings,
    check_dynamic,
    is_without_effect,
    usable_settings,
)
from barnabas.broker.settings.kafka_names import has_no_effect, is_secret
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.broker.settings.unused import GROUP_SETTINGS
from barnabas.coordination import configs, paths
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.shielded import completed

ALL_BROKERS = ""
"""The resource name that represents all brokers, as in Kafka's requests."""

log = logging.getLogger(__name__)

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""A function that returns the new dynamic settings for the current ones.

It may be called on any thread and several times.
"""


class DynamicSettings:
    """The dynamic settings of this broker, the cluster-wide dynamic settings, and the settings of groups.

    :param put_into_force: called with the broker's settings after each change.
    """

    def __init__(
        self,
        static: BrokerConfig,
        tree: MetadataStore,
        in_metadata_thread: InMetadataThread,
        put_into_force: Callable[[BrokerConfig], Awaitable[None]],
    ) -> None:
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._put_into_force = put_into_force
        self._changing = asyncio.Lock()
        self.own_name = str(static.broker_id)
        self.groups = self._read_groups()
        """The dynamic settings of each group, by group id."""
        of_all = self._read(BrokerSettings(static), ALL_BROKERS)
        own = self._read(BrokerSettings(static, of_all), self.own_name)
        self.broker = BrokerSettings(static, of_all, own)
        self.config = self.broker.config
        """The effective settings of this broker."""

    def _read(self, known: BrokerSettings, name: str) -> Mapping[str, str]:
        """Read dynamic settings from the metadata store. Log and omit values that this version does not support."""
        found = configs.read_broker_config(self._tree, name)
        if found is not None:
            return self._understood(known, name, found)
        return (known.of_all if name == ALL_BROKERS else known.own) or KEEP_RECORDS

    def _understood(self, known: BrokerSettings, name: str, found: Mapping[str, str]) -> dict[str, str]:
        """Return the supported settings, and log the unsupported settings."""
        usable, problems = usable_settings(known, found, is_of_all=name == ALL_BROKERS)
        configs.report_settings(self._tree, paths.broker_config(name), problems)
        return usable

    def _read_groups(self) -> dict[str, dict[str, str]]:
        groups = {}
        for name, found in configs.read_group_configs(self._tree).items():
            usable, problems = {}, []
            for setting, value in found.items():
                try:
                    _check_group_setting(setting, value)
                except ApiError as error:
                    problems.append(error.reason)
                else:
                    usable[setting] = value
            configs.report_settings(self._tree, paths.group_config(name), problems)
            groups[name] = usable
        return groups

    async def alter_broker(self, name: str, change: Change, *, validate_only: bool = False) -> None:
        """Change the dynamic settings of this broker or of all brokers. They are in effect when this method returns.

        :raises ApiError: the name is another broker's, or a setting is invalid or cannot be changed at runtime.
        """
        # Complete the change even if the client disconnects. Otherwise the settings in memory could differ from the
        # metadata store.
        await completed(self._alter_broker(name, change, validate_only))

    async def _alter_broker(self, name: str, change: Change, validate_only: bool) -> None:
        async with self._changing:
            self.check_broker(name)
            is_of_all = name == ALL_BROKERS
            known = self.broker.of_all if is_of_all else self.broker.own

            def replaced(settings: Mapping[str, str]) -> BrokerSettings:
                return self.broker._replace(of_all=settings) if is_of_all else self.broker._replace(own=settings)

            def changed(settings: Mapping[str, str]) -> Mapping[str, str]:
                settings = change(self._understood(self.broker, name, settings))
                check_dynamic(settings)
                try:
                    replaced(settings).config  # noqa: B018 - the property raises an error if a setting is invalid
                except ConfigurationError as error:
                    raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
                return {each: value for each, value in settings.items() if not _is_not_kept(each)}

            if validate_only:
                changed(known)
                return
            asked = change(known)
            write = configs.change_broker_config
            self.broker = replaced(await self._in_metadata_thread(write, self._tree, name, changed, known))
            self.config = self.broker.config
            _log_without_effect(asked, known)
            await self._put_into_force(self.config)

    async def alter_group(self, name: str, change: Change, *, validate_only: bool = False) -> None:
        """Change the dynamic settings of a group. The group need not have members.

        :raises ApiError: a setting is invalid.
        """
        await completed(self._alter_group(name, change, validate_only))

    async def _alter_group(self, name: str, change: Change, validate_only: bool) -> None:
        async with self._changing:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the group id is empty; there are no settings for all groups")
            known = self.groups.get(name, {})

            def changed(settings: Mapping[str, str]) -> Mapping[str, str]:
                settings = change(settings)
                for setting, value in settings.items():
                    _check_group_setting(setting, value)
                return settings

            if validate_only:
                changed(known)
                return
            write = configs.change_group_config
            self.groups[name] = await self._in_metadata_thread(write, self._tree, name, changed, known)
            if not self.groups[name]:
                del self.groups[name]

    async def end_changes(self) -> None:
        """Wait until no change of settings is in progress."""
        async with self._changing:
            pass

    async def reread(self) -> None:
        """Read and apply changes that other brokers have made.

        :raises CoordinationError: the metadata store cannot be read.
        """
        async with self._changing:
            known = self.broker
            groups = await self._in_metadata_thread(self._read_groups)
            of_all = await self._in_metadata_thread(self._read, known, ALL_BROKERS)
            own = await self._in_metadata_thread(self._read, known._replace(of_all=of_all), self.own_name)
            self.groups = groups
            if (of_all, own) != (known.of_all, known.own):
                self.broker = BrokerSettings(known.static, of_all, own)
                self.config = self.broker.config
                await self._put_into_force(self.config)

    def check_broker(self, name: str) -> None:
        """Check that a resource name is the id of this broker or `ALL_BROKERS`.

        :raises ApiError: INVALID_REQUEST for another broker.
        """
        if name not in {ALL_BROKERS, self.own_name}:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {self.own_name}, not {name!r}")


def _is_not_kept(name: str) -> bool:
    """Return whether a setting is not stored, because it has no effect and its value is a secret."""
    return is_without_effect(name) and is_secret(name)


def _log_without_effect(settings: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Log new or changed settings that have no effect."""
    changed = (name for name, value in settings.items() if known.get(name) != value)
    names = sorted(name for name in changed if has_no_effect(name) or is_without_effect(name))
    if names:
        log.warning("storing broker settings that have no effect: %s", ", ".join(map(_with_own_name, names)))


def _with_own_name(name: str) -> str:
    of_topics = TOPIC_SETTINGS.get(name)
    if of_topics is None or of_topics.broker_setting is None:
        return name
    return f"{name} (a topic setting; its default is the broker setting {of_topics.broker_setting})"


def _check_group_setting(name: str, value: str) -> None:
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        message = f"unknown group setting {name!r}; the group settings are {', '.join(GROUP_SETTINGS)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    try:
        setting.rule.check(name, value)
    except ConfigurationError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
