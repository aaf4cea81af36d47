"""Settings of brokers and groups that are changed while the broker runs: kept in the tree, and in force at once.

Used from the event loop's thread; what the tree has to write runs on the tree's own thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from barnabas.broker.settings.in_force import BrokerSettings, check_dynamic
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.unused import GROUP_SETTINGS
from barnabas.broker.tree_thread import InTreeThread
from barnabas.coordination import configs
from barnabas.coordination.tree import Tree
from barnabas.errors import BarnabasError, ConfigurationError, ErrorCode, KafkaError

ALL_BROKERS = ""
"""The name that stands for every broker, as in Kafka's requests."""

log = logging.getLogger(__name__)

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Given the settings as they were changed so far, returns them as they are to be from now on."""


class DynamicSettings:
    """What was changed of this broker, of all brokers and of groups.

    :param put_into_force: called with the broker's settings when they have changed.
    """

    def __init__(
        self,
        static: BrokerConfig,
        tree: Tree,
        in_tree_thread: InTreeThread,
        put_into_force: Callable[[BrokerConfig], Awaitable[None]],
    ) -> None:
        self._tree = tree
        self._in_tree_thread = in_tree_thread
        self._put_into_force = put_into_force
        self._changing = asyncio.Lock()
        self.own_name = str(static.broker_id)
        self.groups = configs.read_group_configs(tree)
        """What was changed of groups, by name."""
        of_all, own = (self._read(static, name) for name in (ALL_BROKERS, self.own_name))
        self.broker = BrokerSettings(static, of_all, own)
        self.config = self.broker.config
        """The settings of this broker, as they are in force."""

    def _read(self, static: BrokerConfig, name: str) -> dict[str, str]:
        """Read what was changed. A value that this version cannot have is logged and left out."""
        found = configs.read_broker_config(self._tree, name)
        for setting, value in list(found.items()):
            try:
                check_dynamic({setting: value})
                BrokerSettings(static, {setting: value}).config  # noqa: B018 - it raises where it cannot be
            except BarnabasError as error:
                log.warning("the tree says of brokers that %s is %r: %s; it is left out", setting, value, error)
                del found[setting]
        return found

    async def alter_broker(self, name: str, change: Change, *, validate_only: bool = False) -> None:
        """Change settings of this broker, or of all; they are in force when this returns.

        :raises KafkaError: it is another broker, or a setting is wrong or cannot be changed now.
        """
        # Completed even if the client that asked for it is gone: done halfway, tree and memory would disagree.
        await asyncio.shield(asyncio.ensure_future(self._alter_broker(name, change, validate_only)))

    async def _alter_broker(self, name: str, change: Change, validate_only: bool) -> None:
        async with self._changing:
            self.check_broker(name)
            settings = change(self.broker.of_all if name == ALL_BROKERS else self.broker.own)
            check_dynamic(settings)
            of_all = name == ALL_BROKERS
            changed = self.broker._replace(of_all=settings) if of_all else self.broker._replace(own=settings)
            try:
                config = changed.config
            except ConfigurationError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
            if not validate_only:
                await self._in_tree_thread(configs.write_broker_config, self._tree, name, settings)
                self.broker, self.config = changed, config
                await self._put_into_force(config)

    async def alter_group(self, name: str, change: Change, *, validate_only: bool = False) -> None:
        """Change settings of a group, whether it has members or not.

        :raises KafkaError: a setting is wrong.
        """
        await asyncio.shield(asyncio.ensure_future(self._alter_group(name, change, validate_only)))

    async def _alter_group(self, name: str, change: Change, validate_only: bool) -> None:
        async with self._changing:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a group has a name; there are no settings of all groups")
            settings = change(self.groups.get(name, {}))
            for setting, value in settings.items():
                _check_group_setting(setting, value)
            if not validate_only:
                await self._in_tree_thread(configs.write_group_config, self._tree, name, settings)
                self.groups[name] = dict(settings)
                if not settings:
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
            static = self.broker.static
            groups = await self._in_tree_thread(configs.read_group_configs, self._tree)
            of_all = await self._in_tree_thread(self._read, static, ALL_BROKERS)
            own = await self._in_tree_thread(self._read, static, self.own_name)
            self.groups = groups
            if (of_all, own) != (self.broker.of_all, self.broker.own):
                self.broker = BrokerSettings(static, of_all, own)
                self.config = self.broker.config
                await self._put_into_force(self.config)

    def check_broker(self, name: str) -> None:
        """Check that a name is this broker's, or stands for all.

        :raises KafkaError: INVALID_REQUEST.
        """
        if name not in {ALL_BROKERS, self.own_name}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is broker {self.own_name}, not {name!r}")


def _check_group_setting(name: str, value: str) -> None:
    setting = GROUP_SETTINGS.get(name)
    if setting is None:
        message = f"there is no group setting {name!r}; there are {', '.join(GROUP_SETTINGS)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    try:
        setting.rule.check(name, value)
    except ConfigurationError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
