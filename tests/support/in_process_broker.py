"""A broker in this process whose request pipeline is called with frames, and no socket in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from barnabas.broker.broker import Broker
from barnabas.broker.environment import Environment
from barnabas.broker.pipeline.chain import Stage
from barnabas.broker.pipeline.scheduler import ConnectionRequests
from barnabas.broker.settings.static import BrokerConfig
from barnabas.model import FileRegion
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.declare import message_of
from barnabas.records import BatchBuilder
from tests.support.fake_link import FakeLink
from tests.support.log_steps import append_now


class Caller:
    """A client of a broker."""

    def __init__(self, folder: Path, *, stages: Sequence[Stage] = (), **settings: Any) -> None:
        config, environment = BrokerConfig(port=0, data=str(folder), **settings), Environment(stages=stages)
        self.broker = Broker(config, environment, with_status=True)
        self.link = FakeLink()
        self._requests: ConnectionRequests | None = None

    @property
    def requests(self) -> ConnectionRequests:
        """What carries out the requests of this client's connection."""
        if self._requests is None:
            self._requests = self.broker.requests.new_handler(self.link)
        return self._requests

    def reconnect(self) -> None:
        """Go on with another connection."""
        self._requests = None

    async def call(self, request: Any, version: int | None = None) -> Any:
        """Send a request in a version, or in the newest one; return the response."""
        spec = message_of(type(request))
        assert spec.api_key is not None
        version = spec.versions[-1] if version is None else version
        frame = b"".join(request_frame(request, version, 1, "me"))  # type: ignore[arg-type]
        reply = self.requests.carry_out([bytearray(frame)[4:]])
        answer = reply.answer + (await reply.later if reply.later is not None else [])
        frame = b"".join(_sent(each) for each in answer)
        return decode_response(declared_apis()[spec.api_key].response, version, frame[4:])

    def id_of(self, name: str) -> bytes:
        topic = self.broker.topics.get(name)
        assert topic
        return topic.id

    async def in_tree(self, change: Callable[..., Any], *arguments: Any) -> Any:
        """Do something to the metadata tree, as another broker or a tool does."""
        return await self.broker._in_metadata_thread(change, self.broker._tree, *arguments)

    def append(self, *values: bytes, **producer: int) -> None:
        builder = BatchBuilder()
        builder.append_many(1_000, list(values))
        append_now(self.broker.topics.replicas.leader("clicks", 0), bytearray(builder.build(**producer)))


def _sent(part: Any) -> bytes:
    """Return the bytes of a part of an answer."""
    return os.pread(part.file.fileno(), part.length, part.position) if isinstance(part, FileRegion) else bytes(part)


def run_with_broker(folder: Path, scenario: Callable[[Caller], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scenario with a broker that has the topics `clicks` and `views`, of three partitions each."""

    async def run() -> None:
        caller = Caller(folder, **settings)
        await caller.broker.start()
        try:
            for name in ("clicks", "views"):
                if caller.broker.topics.get(name) is None:
                    await caller.broker.topic_admin.create(name, 3, {})
            async with asyncio.timeout(60):
                await scenario(caller)
        finally:
            await caller.broker.stop()

    asyncio.run(run())
