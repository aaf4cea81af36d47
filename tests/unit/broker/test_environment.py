"""A broker takes the world around it from what it is given: no clock, file, thread, chance or network but that."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.disk_work import BrokerThreads, DiskWork
from barnabas.broker.environment import Environment
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import SYSTEM_CLOCK, Clock, ManualClock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.net.server_connection import Limits
from barnabas.storage import OsFileSystem
from barnabas.storage.filesystem import DataFile


def test_broker_epochs_are_positive_numbers_of_63_bits_that_nobody_can_guess() -> None:
    assert RandomSource().random_below is secrets.randbelow
    asked: list[int] = []

    def greatest(below: int) -> int:
        asked.append(below)
        return below - 1

    assert RandomSource(random_below=greatest).new_broker_epoch() == 2**63 - 1
    assert RandomSource(random_below=lambda _below: 0).new_broker_epoch() == 1
    assert asked == [2**63 - 1]


class Loop:
    """Threads that are none: all is done at once."""

    def __init__(self) -> None:
        self.done = 0
        self.closed: list[str] = []

    async def _run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.done += 1
        await asyncio.sleep(0)
        return function(*arguments, **named)

    def work(self) -> DiskWork:
        return DiskWork(self._run, self._run, self._run)

    async def in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._run(function, *arguments)

    beside_metadata = in_acl_thread = in_metadata_thread

    def close_disk(self) -> None:
        self.closed.append("disk")

    def close_metadata(self) -> None:
        self.closed.append("tree")


class Network:
    """A listener without a socket."""

    def __init__(self) -> None:
        self.limits: list[Limits] = []
        self.handlers: list[object] = []

    def make(self, limits: Limits, *_: object) -> Any:
        self.limits.append(limits)
        return self

    def listen(self, _host: str, port: int) -> int:
        return port or 4711

    def accept(self, handler: object) -> None:
        self.handlers.append(handler)

    async def finish(self, _timeout_s: float) -> None: ...

    def close(self) -> None: ...


class Disk(OsFileSystem):
    """Knows which files were made on it."""

    def __init__(self) -> None:
        self.made: set[Path] = set()

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> DataFile:
        if create:
            self.made.add(path)
        return super().open(path, create=create, writable=writable)


class World:
    """A machine of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(1_234_567)
        self.disk, self.loop, self.network = Disk(), Loop(), Network()
        self.trees: list[tuple[Path, Clock]] = []
        self.ids = 0

    def open_metadata_store(self, _config: BrokerConfig, own_file: Path, clock: Clock) -> MetadataStore:
        self.trees.append((own_file, clock))
        return EmbeddedMetadataStore(own_file, clock)

    def new_id(self) -> uuid.UUID:
        self.ids += 1
        return uuid.UUID(int=self.ids)

    def environment(self) -> Environment:
        return Environment(
            clock=self.clock,
            filesystem=self.disk,
            threads=lambda: self.loop,  # type: ignore[arg-type,return-value]
            listen=self.network.make,
            open_metadata_store=self.open_metadata_store,
            random_source=RandomSource(random_below=lambda _: 0, new_id=self.new_id),
            boot_id=lambda: "this boot",
            watches_loop=False,
        )

    async def run(self, scenario: Callable[[Broker], Any]) -> None:
        """Run a scenario with a broker that is started here."""
        config = BrokerConfig(port=0, data=str(self.folder), log_cleaner_enable=False)
        broker = Broker(config, self.environment())
        await broker.start()
        try:
            async with asyncio.timeout(60):
                await scenario(broker)
        finally:
            await broker.stop()


def test_broker_takes_time_files_random_numbers_and_network_from_its_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "data")

    def refuse(*_: object) -> None:
        raise AssertionError("the operating system was asked")

    for module, name in ((uuid, "uuid4"), (secrets, "randbelow")):
        monkeypatch.setattr(module, name, refuse)

    clocks: list[Clock] = []

    async def scenario(broker: Broker) -> None:
        monkeypatch.setattr(asyncio, "to_thread", refuse)
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
        topic = await broker.topic_admin.create("clicks", 2, {})
        assert broker.port == 4711
        assert topic.id == uuid.UUID(int=world.ids).bytes
        assert broker.clock.time_ms == world.clock.time_ms
        clocks.append(broker.clock)
        assert world.network.handlers == [broker.requests.new_handler]

    asyncio.run(world.run(scenario))
    assert world.trees == [(tmp_path / "data" / "tree.sqlite", clocks[0])]
    assert "boot.id=this boot" in (tmp_path / "data" / "meta.properties").read_text()
    assert sum(path.suffix == ".log" for path in world.disk.made) == 2
    assert world.loop.done > 0
    assert world.loop.closed == ["disk", "tree"]


def test_two_brokers_with_the_same_environment_do_the_same(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        world = World(tmp_path / name)

        async def scenario(broker: Broker) -> None:
            found.append((broker.identity.cluster_id, (await broker.topic_admin.create("clicks", 1, {})).id))

        asyncio.run(world.run(scenario))
    assert found[0] == found[1]


def test_environment_is_the_machines_unless_another_is_given() -> None:
    own = Environment()
    assert own.clock is SYSTEM_CLOCK
    assert isinstance(own.filesystem, OsFileSystem)
    assert own.threads is BrokerThreads
    assert own.random_source == RandomSource()
    assert own.watches_loop
    given = replace(own, boot_id=lambda: "another")
    assert given.boot_id() == "another"
    assert (given.clock, given.dial, given.listen) == (own.clock, own.dial, own.listen)
    with pytest.raises(FrozenInstanceError):
        own.watches_loop = False  # type: ignore[misc]
