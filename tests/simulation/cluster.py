"""Brokers of production in the simulated world: machines with a disk, and the lives of the processes on them."""

from __future__ import annotations

import asyncio
import datetime
import functools
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from barnabas.broker.broker import Broker
from barnabas.broker.disk_work import BrokerThreads, DiskWork
from barnabas.broker.environment import Environment
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.coordination import paths, values
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.security.authority import Authority
from barnabas.storage.checkpoints import decode_life, decode_meta_properties
from barnabas.storage.cleaner.cleaner import Cleaner
from barnabas.storage.file_names import LIFE_COUNTER, META_PROPERTIES
from tests.simulation.disk import Disk, SimulatedFileSystem
from tests.simulation.ensemble import Ensemble
from tests.simulation.network import Network
from tests.simulation.turns import Turns
from tests.simulation.world import Host, HostClock, World

PORT = 9092
DATA = "/data"
DISK_MOST_S = 0.003
SESSION_S = 6.0
"""The session with the tree, at a scale of one, as all times here."""
CLEANER_MOST_S = 0.3
START_AGAIN_S = 1.0
VALID_FROM = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


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


class SlowExecutor(Executor):
    """Does what it is given a while later, at one instant."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        delay_s = self._host.world.random.uniform(0, CLEANER_MOST_S)
        self._host.after(delay_s, self._do, future, functools.partial(call, *args, **named))
        return future

    def _do(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)


class _Asker:
    """A thread that asks the tree one thing after the other."""

    def __init__(
        self, host: Host, tree_s: Callable[[], float], tell: Callable[[asyncio.Future[Any], object, Any], None]
    ) -> None:
        self._host = host
        self._tree_s = tree_s
        self._tell = tell
        self._asked: deque[Callable[[], None]] = deque()
        """What is to be asked of the tree; the first is under way."""
        self._turns = Turns(host, tree_s)

    def ask(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        told = self._host.world.loop.create_future()
        self._asked.append(functools.partial(self._ask, told, functools.partial(function, *arguments)))
        if len(self._asked) == 1:
            self._asked[0]()
        return told

    def _ask_next(self) -> None:
        self._asked.popleft()
        if self._asked:
            self._asked[0]()

    # Timers and no tasks, since a run does little else as often.

    def _ask(self, told: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        def answer(result: object, failure: Exception | None) -> None:
            self._host.after(self._tree_s(), tell, result, failure)

        def tell(result: object, failure: Exception | None) -> None:
            self._tell(told, result, failure)
            self._ask_next()

        self._host.after(self._tree_s(), self._turns.begin, call, answer)


class SimulatedThreads(BrokerThreads):
    """Work that takes a while, during which others go on, and is done at one instant of it.

    As with threads, whoever is no longer waited for is carried out nevertheless.
    """

    def __init__(self, host: Host, ensemble: Ensemble) -> None:
        self._host = host
        self._ensemble = ensemble
        self._metadata = _Asker(host, self._tree_s, self._tell)
        self._acls = _Asker(host, self._tree_s, self._tell)

    def work(self) -> DiskWork:
        return DiskWork(self._do, self._do, self._do)

    def _do(self, call: Callable[..., Any], *args: Any, **named: Any) -> asyncio.Future[Any]:
        told = self._host.world.loop.create_future()
        self._begin(told, functools.partial(call, *args, **named))
        return told

    def beside_metadata(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return self._do(function, *arguments)

    def in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return self._metadata.ask(function, *arguments)

    def in_acl_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return self._acls.ask(function, *arguments)

    def _begin(self, told: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        self._host.after(self._disk_s(), self._carry_out, told, call)

    def _carry_out(self, told: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        result, failure = None, None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - it is raised where the result is waited for
            failure = error
        self._host.after(self._disk_s(), self._tell, told, result, failure)

    def _tell(self, told: asyncio.Future[Any], result: object, failure: Exception | None) -> None:
        if told.done():
            return
        if failure is None:
            told.set_result(result)
        else:
            told.set_exception(failure)

    def _disk_s(self) -> float:
        return self._host.world.random.random() * DISK_MOST_S

    def _tree_s(self) -> float:
        return self._ensemble.delay_s(self._host)

    def close_disk(self) -> None:
        """All that was done is done."""

    def close_metadata(self) -> None:
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
        self._copies: list[Disk] = []
        world = cluster.world
        rate = 1 + world.random.uniform(-0.001, 0.001)
        self._ahead_ms = world.random.randint(-2_000, 2_000)
        self._clock = HostClock(world.loop, rate, self._ahead_ms)
        self._cluster = cluster

    @property
    def is_up(self) -> bool:
        return self.host is not None and self.host.is_alive

    def start(self) -> None:
        """Begin a life; the broker is up some time later, and tries again as whoever starts it would."""
        world = self._cluster.world
        host = self.host = Host(world, self.name, self._clock)
        host.task(self._live(host))

    async def _live(self, host: Host) -> None:
        while True:
            broker = Broker(self._cluster.config_of(self), self._environment(host))
            self.broker = broker
            try:
                await broker.start()
            except BarnabasError as error:
                self.broker = None  # others may lead what it had begun to lead
                self._cluster.world.tell(f"{self.name} does not start: {error}")
                await asyncio.sleep(START_AGAIN_S * self._cluster.world.scale)
            else:
                self._cluster.world.tell(f"{self.name} is up")
                return

    def set_clock(self, ahead_s: float) -> None:
        """Set the clock on its wall, in this life and those to come, ahead of what it shows by itself, or back."""
        self._clock.ahead_ms = self._ahead_ms + int(ahead_s * 1000)

    def names_in(self, folder: Path) -> list[str]:
        """Return what is in a folder of its disk."""
        host = self.host
        return [] if host is None else SimulatedFileSystem(self.disk, host).list_folder(folder)

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

    def copy_disk(self) -> None:
        """Make a copy of the disk that may be restored later."""
        self._copies.append(self.disk.copy())

    def old_copies(self) -> list[Disk]:
        """Return the copies of the disk that a broker can find to be old: their life counters are below the tree's."""
        return [copy for copy in self._copies if self._is_old(copy)]

    def _is_old(self, copy: Disk) -> bool:
        meta, life = (copy.content(Path(DATA, name)) for name in (META_PROPERTIES, LIFE_COUNTER))
        if meta is None:
            return False
        path = paths.life(decode_meta_properties(meta).directory_id)
        node = self._cluster.ensemble.nodes.get(path)
        known = None if node is None else values.decode_life(path, node.data)
        return known is not None and (life is None or decode_life(life)[0].is_older_than(known))

    def restore_disk(self, copy: Disk) -> None:
        """Put an older copy of the disk in its place; the broker must be down."""
        self.disk.restore(copy)

    def _environment(self, host: Host) -> Environment:
        world, cluster = self._cluster.world, self._cluster
        filesystem = SimulatedFileSystem(self.disk, host)
        return Environment(
            clock=host.clock,
            filesystem=filesystem,
            threads=lambda: SimulatedThreads(host, cluster.ensemble),
            new_threads=lambda _, name: SlowExecutor(host) if name == "cleaner" else InlineExecutor(),
            new_cleaner=lambda _: Cleaner(filesystem, new_secret=world.random.randbytes),
            listen=cluster.network.listener_of(host),
            dial=cluster.network.dial,
            open_metadata_store=lambda config, path, clock: cluster.ensemble.connect(host),
            random_source=RandomSource(
                world.random.randrange, lambda: uuid.UUID(int=world.random.getrandbits(128), version=4)
            ),
            boot_id=lambda: f"boot {self.boots} of {self.name}",
            process_id=lambda: self.number,
            watches_loop=False,
            decodes_otlp=lambda: False,
        )


class SimulatedCluster:
    """Machines with brokers, the network between them, and the ensemble that coordinates them."""

    def __init__(self, world: World, count: int = 3, settings: dict[str, Any] | None = None) -> None:
        self.world = world
        self.settings = settings or {}
        self.network = Network(world)
        self.ensemble = Ensemble(world, self.network, SESSION_S * world.scale)
        self.on_end_told: Callable[[str, TopicPartition, int], None] = _ignore
        """Called with the name of a client, a place, and where its log ends by what the client was told."""
        self.on_acknowledged: Callable[[TopicPartition, int], None] = _ignore
        """Called with a place and the offset that a client was told, when its records were acknowledged at acks=all."""
        self.machines = {number: Machine(self, number) for number in range(1, count + 1)}

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple((machine.name, PORT) for machine in self.machines.values())

    def config_of(self, machine: Machine) -> BrokerConfig:
        scaled_ms = {
            "zookeeper_session_timeout_ms": 1000 * SESSION_S,
            "zookeeper_connection_timeout_ms": 18_000,
            "replica_lag_time_max_ms": 5_000,
            # Longer than Kafka's 500: half of what a run did was to ask for records that there were not.
            "replica_fetch_wait_max_ms": 2_000,
            "replica_fetch_backoff_ms": 1_000,
            "replica_socket_timeout_ms": 30_000,
            "replica_high_watermark_checkpoint_interval_ms": 5_000,
            "file_delete_delay_ms": 5_000,
        }
        settings: dict[str, Any] = {
            **{name: int(ms * self.world.scale) for name, ms in scaled_ms.items()},
            "offsets_topic_num_partitions": 2,
            "log_segment_bytes": 20_000,
            "log_cleaner_enable": False,
            # So often that a jump of a clock meets one.
            "log_retention_check_interval_ms": 1_000,
            "offsets_retention_check_interval_ms": 1_000,
        }
        if "authorizer_class_name" in self.settings:
            settings |= {"listeners": f"SSL://{machine.name}:{PORT}", **_certificates()}
        return BrokerConfig(
            broker_id=machine.number,
            allow_anonymous=True,
            host=machine.name,
            port=PORT,
            data=str(Path(DATA)),
            zookeeper_connect="zookeeper",
            rack=f"rack-{machine.number}",
            **{**settings, **self.settings},
        )

    def start(self) -> None:
        for machine in self.machines.values():
            machine.start()


@functools.cache
def _certificates() -> dict[str, str]:
    """Return the settings of listeners with client certificates. No connection uses these certificates."""
    authority = Authority.create("simulated", VALID_FROM)
    issued = authority.issue_server(["broker"], VALID_FROM)
    return {
        "security_inter_broker_protocol": "SSL",
        "ssl_client_auth": "required",
        "ssl_keystore_certificate_chain": issued.certificate,
        "ssl_keystore_key": issued.key,
        "ssl_truststore_certificates": authority.certificate,
    }


def _ignore(*_: object) -> None:
    """Where nobody looks."""
