"""Brokers of production in the simulated world: machines with a disk, and the lives of the processes on them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from barnabas.broker.broker import Broker
from barnabas.broker.chance import Chance
from barnabas.broker.disk_work import BrokerThreads, DiskWork
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.surroundings import Surroundings
from barnabas.errors import BarnabasError
from tests.simulation.disk import Disk, SimulatedFileSystem
from tests.simulation.ensemble import Ensemble
from tests.simulation.network import Network
from tests.simulation.world import Host, HostClock, World

PORT = 9092
DATA = "/data"
DISK_MOST_S = 0.003
START_AGAIN_S = 1.0


class InlineExecutor(Executor):
    """Does at once what it is given."""

    def __init__(self, *_: object) -> None:
        super().__init__()

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **named))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
        return future

    def map(self, call: Callable[..., Any], /, *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        return iter([call(*items) for items in zip(*iterables, strict=False)])


class SimulatedThreads(BrokerThreads):
    """Work that takes a while, during which others go on, and is done at one instant of it.

    As with threads, whoever is no longer waited for is carried out nevertheless.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tree_turn = asyncio.Lock()

    def work(self) -> DiskWork:
        return DiskWork(self._do, self._do, self._do)

    async def _do(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await asyncio.shield(self._host.task(self._later(call, args, named)))

    async def _later(self, call: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        random = self._host.world.random
        await asyncio.sleep(random.uniform(0, DISK_MOST_S))
        result = call(*args, **named)
        await asyncio.sleep(random.uniform(0, DISK_MOST_S))
        return result

    def in_tree_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.shield(self._host.task(self._ask_tree(function, arguments)))

    async def _ask_tree(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        async with self._tree_turn:
            return await self._later(function, arguments, {})

    def close_disk(self) -> None:
        """All that was done is done."""

    def close_tree(self) -> None:
        """The same."""


class Machine:
    """A machine, over the lives of its broker."""

    def __init__(self, cluster: SimulatedCluster, number: int) -> None:
        self.number = number
        self.name = f"broker-{number}"
        self.disk = Disk(cluster.world)
        self.host: Host | None = None
        self.broker: Broker | None = None
        self.boots = 1
        world = cluster.world
        self.rate = 1 + world.random.uniform(-0.001, 0.001)
        self.ahead_ms = world.random.randint(-2_000, 2_000)
        self._cluster = cluster

    @property
    def is_up(self) -> bool:
        return self.host is not None and self.host.is_alive

    def start(self) -> None:
        """Begin a life; the broker is up some time later, and tries again as whoever starts it would."""
        world = self._cluster.world
        clock = HostClock(world.loop, self.rate, self.ahead_ms)
        host = self.host = Host(world, self.name, clock)
        host.task(self._live(host))

    async def _live(self, host: Host) -> None:
        while True:
            broker = Broker(self._cluster.config_of(self), self._surroundings(host))
            self.broker = broker
            try:
                await broker.start()
            except BarnabasError as error:
                self._cluster.world.tell(f"{self.name} does not start: {error}")
                await asyncio.sleep(START_AGAIN_S)
            else:
                self._cluster.world.tell(f"{self.name} is up")
                return

    def kill(self) -> None:
        """As `kill -9` does: what was written stays."""
        if self.host is not None:
            self.host.kill()
        self.broker = None

    def lose_power(self) -> None:
        """The machine goes, with all that its disk had not stored."""
        self.kill()
        self.disk.lose_power()
        self.boots += 1

    def _surroundings(self, host: Host) -> Surroundings:
        world, cluster = self._cluster.world, self._cluster
        return Surroundings(
            clock=host.clock,
            filesystem=SimulatedFileSystem(self.disk, host),
            threads=lambda: SimulatedThreads(host),
            new_threads=InlineExecutor,
            listen=cluster.network.listener_of(host),
            dial=cluster.network.dial,
            open_tree=lambda config, path, clock: cluster.ensemble.connect(host),
            chance=Chance(world.random.randrange, lambda: uuid.UUID(int=world.random.getrandbits(128), version=4)),
            boot_id=lambda: f"boot {self.boots} of {self.name}",
            watches_loop=False,
        )


class SimulatedCluster:
    """Machines with brokers, the network between them, and the ensemble that coordinates them."""

    def __init__(self, world: World, count: int = 3, settings: dict[str, Any] | None = None) -> None:
        self.world = world
        self.settings = settings or {}
        self.network = Network(world)
        self.ensemble = Ensemble(world, self.network, self.settings.get("zookeeper_session_timeout_ms", 6_000) / 1000)
        self.machines = {number: Machine(self, number) for number in range(1, count + 1)}

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple((machine.name, PORT) for machine in self.machines.values())

    def config_of(self, machine: Machine) -> BrokerConfig:
        settings: dict[str, Any] = {
            "zookeeper_session_timeout_ms": 6_000,
            "replica_lag_time_max_ms": 5_000,
            "offsets_topic_num_partitions": 2,
            "log_segment_bytes": 20_000,
            "file_delete_delay_ms": 5_000,
        }
        return BrokerConfig(
            broker_id=machine.number,
            host=machine.name,
            port=PORT,
            data=str(Path(DATA)),
            zookeeper_connect="zookeeper",
            rack=f"rack-{machine.number}",
            log_cleaner_enable=False,
            **{**settings, **self.settings},
        )

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()
