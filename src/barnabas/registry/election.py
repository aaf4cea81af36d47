"""Which of several registries writes: the one that a consumer group gives the topic's only partition.

Each registry is a member of the group, under a client id that holds its address, so that all can look up who has the
partition and where it is. Brokers see to it that there is one; when it goes, another is given the partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from barnabas.client.admin.groups import describe_group
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.registry.errors import RegistryError
from barnabas.registry.topic import AGAIN_S, SchemaTopic

CLIENT_ID = "schema-registry "
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
LOOK_S = 0.5

log = logging.getLogger(__name__)


class Election:
    """Takes part in the election, and knows who has won.

    :param url: where others reach this registry.
    """

    def __init__(self, bootstrap: str, group: str, url: str, topic: SchemaTopic, settings: Mapping[str, str]) -> None:
        self.url = url
        self.leads = False
        """Whether this registry writes: it has the partition, and has read all that others wrote before."""
        self._group = group
        self._topic = topic
        self._tp = TopicPartition(topic.name, 0)
        given = {**settings, "bootstrap.servers": bootstrap, "client.id": f"{CLIENT_ID}{url}"}
        self._consumer = AsyncConsumer(
            given,
            group=group,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            partition_assignment_strategy="cooperative-sticky",  # who writes goes on when others come,
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            self._topic.name, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        self._task = asyncio.create_task(self._take_part())

    async def stop(self) -> None:
        """Leave the group, so that another registry writes at once."""
        self.leads = False
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._consumer.close()

    async def leader_url(self, timeout_s: float) -> str:
        """Return where the registry that writes is reached.

        :raises RegistryError: 50004: there is none within the time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self.leads:
                        return self.url
                    described = await describe_group(self._topic.cluster, self._group)
                    for member in described.members:
                        if self._tp in member.partitions and member.client_id.startswith(CLIENT_ID):
                            url = member.client_id.removeprefix(CLIENT_ID)
                            if url != self.url:
                                return url
                    await asyncio.sleep(LOOK_S)
        except (TimeoutError, BarnabasError) as error:
            raise RegistryError.unknown_leader() from error

    def _on_assign(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._consumer.pause(*partitions)

    def _on_revoke(self, _partitions: list[TopicPartition]) -> None:
        if self.leads:
            log.info("another registry writes from now on")
        self.leads = False

    async def _take_part(self) -> None:
        while True:
            try:
                await self._consumer.poll(timeout_s=LOOK_S)
                if not self.leads and self._consumer.assignment():
                    await self._topic.catch_up()
                    self.leads = bool(self._consumer.assignment())
                    if self.leads:
                        log.info("this registry writes from now on")
            except BarnabasError as error:
                self.leads = False
                log.warning("the election of the registry that writes: %s", error)
                await asyncio.sleep(AGAIN_S)
