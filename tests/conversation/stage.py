"""One broker in virtual time, and clients that send it bytes.

The broker is a whole `Broker` behind its two listeners; a second broker is registered in the metadata tree, but no
process answers for it, so that a script can act as that broker. Delays are constant, ids come from a seed, and time
passes only when nothing is left to do. So the same bytes come back from two runs, whatever the machine.
"""

from __future__ import annotations

import heapq
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from barnabas.broker.broker import Broker
from barnabas.broker.environment import Environment
from barnabas.broker.handlers import SERVED
from barnabas.broker.random_source import RandomSource
from barnabas.broker.settings.static import BrokerConfig
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.values import BrokerRegistration
from barnabas.protocol.codec import request_frame
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.storage.cleaner.cleaner import Cleaner
from tests.conversation.transcript import Exchange, LineRecord, decode_answer
from tests.simulation.cluster import InlineExecutor, SimulatedThreads, SlowExecutor
from tests.simulation.disk import Disk, SimulatedFileSystem
from tests.simulation.ensemble import Ensemble
from tests.simulation.loop import Due, SimulatedLoop
from tests.simulation.network import Network, SimulatedStream
from tests.simulation.world import Host, HostClock, World

CLIENTS, BROKERS = "clients", "brokers"
"""The two listeners."""
BROKER, OTHER = "broker-1", "broker-2"
PORTS = {CLIENTS: 9092, BROKERS: 9093}
OTHER_EPOCH = 0x1122334455667788
"""The broker epoch with which broker 2 is registered."""

SOCKET_BYTES = 64 * 1024
"""So much the network takes of what the other end does not read."""
NETWORK_S = 0.000_13
DISK_S = 0.000_31
BEAT_S = 0.01
"""The script sends at multiples of this time, so that small delays do not add up."""
BEAT_OFFSET_S = 0.000_5
"""Answers to requests that wait for nothing arrive in the middle of a millisecond, where rounding is safe."""
PATIENCE_S = 120.0
WORK_S = 0.000_02
"""What each look at the clock costs while the broker is busy: slices and turns end, as on a real machine."""


class SteadyNetwork(Network):
    """A network in which each message takes the same time."""

    def delay_s(self) -> float:
        return NETWORK_S

    def new_stream(self, host: Host) -> SimulatedStream:
        return FlowingStream(self, host)


class FlowingStream(SimulatedStream):
    """An end of a connection that knows how much the other end has not read."""

    def open(
        self,
        on_bytes: Callable[[memoryview], None],
        on_drained: Callable[[], None],
        on_closed: Callable[[Exception | None], None],
    ) -> SimulatedStream:
        self._on_drained = on_drained
        return super().open(on_bytes, on_drained, on_closed)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self.other.is_reading else max(0, self._waiting_bytes() - SOCKET_BYTES)

    @property
    def unsent_memory_bytes(self) -> int:
        return self.unsent_bytes

    def _waiting_bytes(self) -> int:
        return sum(len(data or b"") for data in (*self._under_way, *self.other._arrived))

    def resume_reading(self) -> None:
        other = self.other
        had_to_wait = isinstance(other, FlowingStream) and other.unsent_bytes > 0
        super().resume_reading()
        if had_to_wait and other.is_open:
            other._host.after(NETWORK_S, other._on_drained)


class SteadyThreads(SimulatedThreads):
    """Disk work that takes the same time always."""

    def _disk_s(self) -> float:
        return DISK_S


class WorkingLoop(SimulatedLoop):
    """A loop in which each look at the clock may take time."""

    work_s = 0.0

    def time(self) -> float:
        self._now_s += self.work_s
        return self._now_s

    def _next_later(self) -> Due:
        """As asyncio does: all timers that are due are called in the same round."""
        due = super()._next_later()
        while self._due_later and self._due_later[0][0] <= self._now_s:
            self._due_now.append(heapq.heappop(self._due_later)[2])
        return due


class Stage:
    """A broker and what a script needs to talk to it.

    :param api_keys: the APIs that the broker serves to clients.
    :param settings: of the broker, besides the usual ones.
    :param alone: whether broker 2 is not there; then there is no internal topic yet either.
    """

    def __init__(self, api_keys: Sequence[int], *, alone: bool = False, **settings: Any) -> None:
        self.world = World(1)
        self.world.loop.close()
        self.loop = self.world.loop = WorkingLoop()
        self.network = SteadyNetwork(self.world)
        self.ensemble = Ensemble(self.world, self.network, session_timeout_s=6.0)
        self.lines: list[Line] = []
        self.client = self._host("client-host")
        self.last_correlation_id = 1_000
        host = self.host = self._host(BROKER)
        config = {
            "broker_id": 1,
            "host": BROKER,
            "port": PORTS[CLIENTS],
            "inter_broker_port": PORTS[BROKERS],
            "data": "/data",
            "zookeeper_connect": "zookeeper",
            "rack": "rack-1",
            "num_partitions": 2,
            "offsets_topic_num_partitions": 3,
            "offsets_topic_replication_factor": 1,
            "log_cleaner_enable": False,
            "auto_leader_rebalance_enable": False,
            "replica_fetch_backoff_ms": 5_000,
            "allow_anonymous": True,
            **settings,
        }
        served = {key: SERVED[key] for key in api_keys}
        self.broker = Broker(BrokerConfig(**config), self._environment(host), served)
        with self.loop.found_quickly():
            start = host.task(self.broker.start())
            self.loop.run_until_complete(start)
        if not alone:
            # The internal topic is made while broker 1 is alone, so that it coordinates all groups.
            self.line("stage").ask(FindCoordinatorRequest(key="any"), 0)
            self.pass_time(0.5)
            self._register_other()
        self.pass_time(0.5)

    def _host(self, name: str) -> Host:
        return Host(self.world, name, HostClock(self.loop, 1.0, 0))

    def _environment(self, host: Host) -> Environment:
        drawn = random.Random(20_261_127)
        filesystem = SimulatedFileSystem(Disk(self.world), host)
        return Environment(
            clock=host.clock,
            filesystem=filesystem,
            threads=lambda: SteadyThreads(host, self.ensemble),
            new_threads=lambda _, name: SlowExecutor(host) if name == "cleaner" else InlineExecutor(),
            new_cleaner=lambda _: Cleaner(filesystem, new_secret=drawn.randbytes),
            listen=self.network.listener_of(host),
            dial=self.network.dial,
            open_metadata_store=lambda config, path, clock: self.ensemble.connect(host),
            random_source=RandomSource(drawn.randrange, lambda: uuid.UUID(int=drawn.getrandbits(128), version=4)),
            boot_id=lambda: "boot of the conversation",
            process_id=lambda: 1,
            watches_loop=False,
        )

    def _register_other(self) -> None:
        session = self.ensemble.connect(self._host(OTHER))
        other = BrokerRegistration(
            2, OTHER, 9092, 0, replication_host=OTHER, replication_port=9093, rack="rack-2", epoch=OTHER_EPOCH
        )
        topic_metadata_store.register_broker(session, other)

    def line(self, name: str, client_id: str | None = "script", listener: str = CLIENTS) -> Line:
        """Open a connection.

        :param name: names the connection in the recording.
        """
        line = Line(self, f"{len(self.lines):03} {name}", client_id, listener)
        self.lines.append(line)
        return line

    def next_correlation_id(self) -> int:
        self.last_correlation_id += 1
        return self.last_correlation_id

    def beat(self) -> None:
        """Let time pass to the next beat."""
        beats = int((self.loop._now_s - BEAT_OFFSET_S) / BEAT_S) + 1
        self._run_until(beats * BEAT_S + BEAT_OFFSET_S)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, to a beat."""
        self._run_until(self.loop._now_s + seconds)
        self.beat()

    @contextmanager
    def busy(self, work_s: float = WORK_S) -> Iterator[None]:
        """Let each look at the clock take time, as if the broker were busy. What follows begins at the next full
        minute, however long that took."""
        self.loop.work_s = work_s
        try:
            yield
        finally:
            self.loop.work_s = 0.0
        self._run_until((int(self.loop._now_s / 60) + 1) * 60.0)
        self.beat()

    def wait_for(self, lines: Sequence[Line]) -> None:
        """Let time pass until all requests of these connections are answered, or the connections end."""
        assert self.waits_for(lines), [line.name for line in lines if line.is_owed]

    def waits_for(self, lines: Sequence[Line]) -> bool:
        """Do the same; return whether it came so far within `PATIENCE_S`."""
        for line in lines:
            if line.is_owed:
                self._run_until(self.loop._now_s + PATIENCE_S, line)
        return not any(line.is_owed for line in lines)

    def _run_until(self, when_s: float, line: Line | None = None) -> None:
        timer = self.loop.call_at(when_s, self.loop.stop)
        if line is not None:
            line.on_settled = self.loop.stop
        with self.loop.found_quickly():
            self.loop.run_forever()
        timer.cancel()
        if line is not None:
            line.on_settled = None

    def stop_broker(self) -> None:
        """Stop the broker as an operator does, and wait until it has stopped."""
        stopping = self.host.task(self.broker.stop())
        stopping.add_done_callback(lambda _task: self.loop.stop())
        self._run_until(self.loop._now_s + PATIENCE_S)
        assert stopping.done(), "the broker does not stop"

    def end(self) -> list[LineRecord]:
        """End the broker, and return what each connection sent and received.

        :raises AssertionError: the broker let an error escape.
        """
        records = [line.record for line in self.lines]
        unhandled = self.loop.unhandled
        self.world.end()
        assert not unhandled, unhandled
        return records

    @property
    def now_ms(self) -> int:
        """The time of the broker's clock, to the millisecond."""
        return self.client.clock.time_ms()


class Line:
    """A client's connection."""

    def __init__(self, stage: Stage, name: str, client_id: str | None, listener: str) -> None:
        self.stage = stage
        self.client_id = client_id
        self.record = LineRecord(name, listener)
        self.is_open = True
        self.on_settled: Any = None
        self._owed: dict[int, Exchange] = {}
        self._received = bytearray()
        network = stage.network
        port = PORTS[listener]
        self._stream = network.connect(stage.client, network.listeners[BROKER, port], BROKER)
        self._stream.open(self._on_bytes, _nothing, self._on_closed)

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def is_owed(self) -> bool:
        """Whether an answer is to come."""
        return self.is_open and bool(self._owed)

    def _on_bytes(self, data: memoryview) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            frame = bytes(self._received[:end])
            del self._received[:end]
            self.record.on_answer(frame, self._now_ms())
            self._owed.pop(int.from_bytes(frame[4:8], "big", signed=True), None)
        if not self._owed and self.on_settled is not None:
            self.on_settled()

    def _on_closed(self, _error: Exception | None) -> None:
        self.is_open = False
        if self.record.closed_ms is None:
            self.record.closed_ms = self._now_ms()
            self.record.rest = bytes(self._received)
        if self.on_settled is not None:
            self.on_settled()

    def _now_ms(self) -> int:
        """Milliseconds of virtual time; -1 while time depends on how often the broker looks at its clock."""
        loop = self.stage.loop
        return -1 if loop.work_s else int(loop._now_s * 1000)

    # --- sending ----------------------------------------------------------------------------------------

    def exchange(self, request: Any, version: int, *, closes: bool = False) -> Exchange:
        """Make the frame of a request, which is to be sent with `send`.

        :param closes: whether the broker is expected to end the connection over it.
        """
        correlation_id = self.stage.next_correlation_id()
        chunks: list[Any] = request_frame(request, version, correlation_id, self.client_id)
        frame = b"".join(bytes(chunk) for chunk in chunks)
        key = message_of(type(request)).api_key
        assert key is not None
        wants_answer = key != 0 or request.acks != 0
        return Exchange(key, version, correlation_id, self.client_id, frame, wants_answer, closes)

    def send(self, *exchanges: Exchange, cuts: Sequence[int] = ()) -> None:
        """Send requests without a pause.

        :param cuts: the positions at which the bytes are cut into segments.
        """
        for each in exchanges:
            self.record.exchanges.append(each)
            if each.wants_answer:
                self._owed[each.correlation_id] = each
        self._send(b"".join(each.frame for each in exchanges), cuts)

    def send_begin(self, exchange: Exchange, size: int) -> bytes:
        """Send the first bytes of a request, and return the others, for `send_rest`."""
        exchange.missing_bytes = len(exchange.frame) - size
        self.record.exchanges.append(exchange)
        self._owed[exchange.correlation_id] = exchange
        self._send(exchange.frame[:size], ())
        return exchange.frame[size:]

    def send_rest(self, data: bytes) -> None:
        """Send more of the request that was begun last."""
        self.record.exchanges[-1].missing_bytes -= len(data)
        self._send(data, ())

    def send_bytes(self, data: bytes) -> None:
        """Send what is no request that could be answered."""
        self.record.exchanges.append(Exchange(None, 0, 0, None, data, wants_answer=False, closes=False))
        self._send(data, ())

    def _send(self, data: bytes, cuts: Sequence[int]) -> None:
        for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
            self._stream.send([data[begin:end]])

    def send_all(self, requests: Sequence[tuple[Any, int]], cuts: Sequence[int] = ()) -> None:
        """Send requests, each with its version, in one segment."""
        self.send(*(self.exchange(request, version) for request, version in requests), cuts=cuts)

    def ask(self, request: Any, version: int) -> Any:
        """Send a request at the next beat and return the decoded answer; None where the connection ends, or there is
        none to come."""
        self.stage.beat()
        exchange = self.exchange(request, version)
        self.send(exchange)
        self.stage.wait_for([self])
        return self.answer_to(exchange)

    def ask_all(self, requests: Sequence[tuple[Any, int]], cuts: Sequence[int] = ()) -> None:
        """Send requests in one segment at the next beat, and wait for all answers."""
        self.stage.beat()
        self.send_all(requests, cuts)
        self.stage.wait_for([self])

    def answer_to(self, exchange: Exchange) -> Any:
        """Return the decoded answer; None where there is none."""
        frame = self.record.answer_to(exchange)
        if frame is None:
            return None
        return decode_answer(exchange, frame)

    def pause_reading(self) -> None:
        """Take no answers, until `resume_reading`."""
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        self._stream.resume_reading()

    def leave(self) -> None:
        """Close the connection from the client's side."""
        self.record.closed_ms = self._now_ms()
        self.record.is_left = True
        self._stream.close()


def _nothing(*_: object) -> None:
    """Stands for a callback that this end of the connection does not need."""
