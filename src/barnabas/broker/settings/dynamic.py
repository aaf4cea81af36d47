"""Settings of brokers and groups that are changed while the broker runs: kept in the tree, and in force at once.

Used from the event loop's thread; what the tree has to write runs on the tree's own thread.
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

ALL_BROKERS = ""
"""The name that stands for every broker, as in Kafka's requests."""

log = logging.getLogger(__name__)

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Given the settings as they were changed so far, returns them as they are to be from now on. Called on any thread, and
again where somebody else changes them meanwhile."""


class DynamicSettings:
    """What was changed of this broker, of all brokers and of groups.

    :param put_into_force: called with the broker's settings when they have changed.
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
        """What was changed of groups, by name."""
        of_all = self._read(BrokerSettings(static), ALL_BROKERS)
        own = self._read(BrokerSettings(static, of_all), self.own_name)
        self.broker = BrokerSettings(static, of_all, own)
        self.config = self.broker.config
        """The settings of this broker, as they are in force."""

    def _read(self, known: BrokerSettings, name: str) -> Mapping[str, str]:
        """Read what was changed. A value that this version cannot have is reported and left out."""
        found = configs.read_broker_config(self._tree, name)
        if found is not None:
            return self._understood(known, name, found)
        return (known.of_all if name == ALL_BROKERS else known.own) or KEEP_RECORDS

    def _understood(self, known: BrokerSettings, name: str, found: Mapping[str, str]) -> dict[str, str]:
        """Return those settings of this broker, or of all, that this version can have; the others are reported."""
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
        """Change settings of this broker, or of all; they are in force when this returns.

        :raises ApiError: it is another broker, or a setting is wrong or cannot be changed now.
        """
        # Completed even if the client that asked for it is gone: done halfway, tree and memory would disagree.
        await asyncio.shield(asyncio.ensure_future(self._alter_broker(name, change, validate_only)))

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
                    replaced(settings).config  # noqa: B018 - it raises where it cannot be
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
        """Change settings of a group, whether it has members or not.

        :raises ApiError: a setting is wrong.
        """
        await asyncio.shield(asyncio.ensure_future(self._alter_group(name, change, validate_only)))

    async def _alter_group(self, name: str, change: Change, validate_only: bool) -> None:
        async with self._changing:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a group has a name; there are no settings of all groups")
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
        """Return when the changes that have begun are made."""
        async with self._changing:
            pass

    async def reread(self) -> None:
        """Put into force what other brokers have changed.

        :raises CoordinationError: the tree cannot be read.
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
        """Check that a name is this broker's, or stands for all.

        :raises ApiError: INVALID_REQUEST.
        """
        if name not in {ALL_BROKERS, self.own_name}:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {self.own_name}, not {name!r}")


def _is_not_kept(name: str) -> bool:
    """Whether a setting has no effect here, and a secret as its value."""
    return is_without_effect(name) and is_secret(name)


def _log_without_effect(settings: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Log the settings without effect that are new, or have a new value."""
    changed = (name for name, value in settings.items() if known.get(name) != value)
    names = sorted(name for name in changed if has_no_effect(name) or is_without_effect(name))
    if names:
        log.warning("these settings of brokers have no effect here: %s", ", ".join(map(_with_own_name, names)))


def _with_own_name(name: str) -> str:
    of_topics = TOPIC_SETTINGS.get(name)
    if of_topics is None or of_topics.broker_setting is None:
        return name
    return f"{name} (a setting of topics; the brokers' default of it is {of_topics.broker_setting})"


def _check_group_setting(name: str, value: str) -> None:
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        message = f"there is no group setting {name!r}; there are {', '.join(GROUP_SETTINGS)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    try:
        setting.rule.check(name, value)
    except ConfigurationError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
