"""`AsyncAdmin`: an admin client for programs with an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from barnabas.addresses import host_ports
from barnabas.client.admin.operations import AdminOperations, cluster_of
from barnabas.client.client_lifecycle import CLOSED, ApplicationLoop
from barnabas.client.config import AdminConfig, Bootstrap, make_config
from barnabas.client.setting_types import ClientSettings
from barnabas.errors import ClosedError

T = TypeVar("T")


class AsyncAdmin(AdminOperations):
    """Describes and changes topics, settings, offsets, groups and brokers from an event loop.

    All calls must be made on this loop, from any number of tasks. The methods are coroutines with the arguments,
    results and errors of `Admin`'s methods.

        async with barnabas.AsyncAdmin("localhost:9092") as admin:
            await admin.create_topic("likes", partitions=6)
            print(await admin.list_topics())
    """

    def __init__(self, bootstrap: Bootstrap = None, **settings: Unpack[ClientSettings]) -> None:
        config = make_config(AdminConfig, bootstrap, settings)
        super().__init__(config, cluster_of(config))
        self._closed = False
        self._lifecycle = ApplicationLoop()
        self._lifecycle.end_with(self, self._cluster.finish, "an AsyncAdmin")

    async def start(self) -> Self:
        """Start the client. `async with` and the first call also start it.

        :raises ClosedError: the client is closed, or belongs to the parent of this forked process.
        """
        self._lifecycle.check_process()
        if self._closed:
            raise ClosedError(CLOSED)
        if self._lifecycle.loop is None:
            self._lifecycle.start()
        return self

    async def _run(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            await self.start()
            return await request
        finally:
            request.close()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Close the connections. Further calls, and calls in a forked child, do nothing.

        :param timeout_s: has no effect, because the call does not wait for the brokers. The other clients have the same
            parameter.
        """
        if not self._lifecycle.is_forked_copy and self._lifecycle.claim_end():
            self._closed = True
            self._lifecycle.unregister()
            await self._cluster.finish()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        servers = host_ports(self._config.bootstrap_servers)
        return f"<barnabas.AsyncAdmin {servers}{' closed' if self._closed else ''}>"
