"""The pipelined produce workload: a fixed number of records per request, with many requests in flight.

`Producer` chooses its batch size itself; this workload measures a given batch size (paper, section 5: batches of 1 and
of 50). It encodes each batch separately with the current timestamp, and writes the frames in bursts.

With acks=0, the workload limits the unsent bytes of each connection; otherwise, it limits the requests in flight. The
clock stops after the last response. With acks=0 an ApiVersions request follows the last Produce request: a broker
processes the requests of a connection in order, so its response proves that the broker has processed all Produce
requests.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from barnabas import __version__
from barnabas.addresses import host_port
from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.config import ClientConfig, make_config
from barnabas.errors import BarnabasError, ConfigurationError, DisconnectedError, Failure, TimedOutError
from barnabas.laboratory.perf.meter import Measured, Meter
from barnabas.laboratory.perf.payloads import PayloadSpec, lists_of
from barnabas.laboratory.perf.produce_frames import CORRELATION_ID_MAX, VERSION_MAX, AnswerReader, FramePattern
from barnabas.laboratory.perf.run_control import RunControl
from barnabas.net.client_connection import dial
from barnabas.protocol.codec import request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records import BatchBuilder, Compression
from barnabas.security.protocols import SecurityProtocol

UNSENT_BYTES_MAX = 1024 * 1024
"""The number of unsent bytes above which a `FramePipe` is not writable until most of these bytes are sent."""


class FramePipe(asyncio.Protocol):
    """A connection to a broker. Only the thread of its event loop may use it.

    :param on_bytes: called with received bytes; an error that it raises closes the pipe.
    """

    def __init__(self, address: str, on_bytes: Callable[[bytes], None]) -> None:
        self.address = address
        self.writable = True
        self._on_bytes = on_bytes
        self._transport: asyncio.Transport | None = None
        self._failure: Failure | None = None
        self._news: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, host: str, port: int, on_bytes: Callable[[bytes], None]) -> FramePipe:
        """Open a connection.

        :raises DisconnectedError: if the connection is refused.
        """
        loop = asyncio.get_running_loop()
        pipe = cls(host_port(host, port), on_bytes)
        try:
            await loop.create_connection(lambda: pipe, host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DisconnectedError(f"cannot connect to {host_port(host, port)}: {reason}", reason) from None
        return pipe

    def write(self, frames: bytes) -> None:
        """Append frames to the send buffer.

        :raises BarnabasError: if the pipe has failed.
        """
        self.check()
        assert self._transport is not None
        self._transport.write(frames)

    def check(self) -> None:
        """Check that the pipe works.

        :raises BarnabasError: if the pipe has failed.
        """
        if self._failure is not None:
            raise self._failure.error()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Wait until bytes have arrived, or until the pipe is writable again.

        :raises TimedOutError: if neither happens within the timeout.
        :raises BarnabasError: if the pipe has failed.
        """
        self.check()
        self._news = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._news
        except TimeoutError:
            raise TimedOutError(f"{self.address} did not respond within {timeout_s:g} s") from None
        finally:
            self._news = None
        self.check()

    def close(self) -> None:
        """Close the connection. Unsent bytes are dropped."""
        if self._transport is not None:
            self._transport.abort()

    def _notify(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, error: BarnabasError) -> None:
        if self._failure is None:
            self._failure = Failure.of(error)
        self._notify()

    # --- callbacks of the event loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        try:
            self._on_bytes(data)
        except BarnabasError as error:
            self._fail(error)
            self.close()
        self._notify()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._notify()

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        self._fail(DisconnectedError(f"the connection to {self.address} was closed{reason}"))


BURST_BYTES = 64 * 1024
"""The size of a burst in bytes; a burst has at least one request. The size is large enough for efficient writes, and
small enough that the broker works while the next burst is encoded.
"""

PRODUCE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Leader:
    """A broker with the partitions that it leads."""

    host: str
    port: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """The job of one process of this workload.

    :param settings: the client's settings under Kafka's names.
    :param batch_records: the number of records in each request; only the last request may have fewer.
    :param in_flight: the maximum number of requests without a response on each connection.
    :param records: the total number of records; None to stop after `seconds`.
    :param warm_up: the number of records to send before the clock starts.
    """

    settings: Mapping[str, Any] = field(repr=False)
    topic: str
    leaders: tuple[Leader, ...]
    batch_records: int
    acks: int = 0
    in_flight: int = 100
    compression: str = "none"
    payload: PayloadSpec = field(default_factory=PayloadSpec)
    records: int | None = None
    seconds: float | None = None
    warm_up: int = 0


def produce_pipelined(job: PipelineJob, meter: Meter, control: RunControl) -> Measured:
    """Produce until all records are stored, or until the meter or the control stops the workload.

    :raises ApiError: if the broker rejects a request.
    :raises DisconnectedError: if a connection is lost.
    :raises TimedOutError: if a broker does not respond in time.
    """
    batches = lists_of(job.payload.values(), job.batch_records)
    # The event loop has a thread of its own: uvloop ignores errors that a signal handler raises during its callbacks.
    thread = LoopThread("barnabas-pipeline")
    try:
        thread.call(_run(job, batches, meter, control))
    finally:
        thread.stop()
        measured = meter.end()
    return measured


async def _run(job: PipelineJob, batches: Sequence[list[bytes]], meter: Meter, control: RunControl) -> None:
    config = make_config(ClientConfig, job.settings, {})
    if config.security_protocol is not SecurityProtocol.PLAINTEXT:
        raise ConfigurationError(
            f"pipelined requests have no TLS and no authentication, but security.protocol is"
            f" {config.security_protocol.value}; use another workload"
        )
    to_leaders = [await _LeaderRequests.open(job, leader, config) for leader in job.leaders]
    try:
        if job.warm_up:
            await _pump_all(to_leaders, _Work(batches, job.warm_up), meter, control)
        control.await_go()
        meter.begin()
        await _pump_all(to_leaders, _Work(batches, job.records), meter, control)
        meter.end()
    finally:
        for requests in to_leaders:
            requests.pipe.close()


async def _pump_all(to_leaders: Sequence[_LeaderRequests], work: _Work, meter: Meter, control: RunControl) -> None:
    def is_running() -> bool:
        return meter.is_running and not control.stopped.is_set()

    try:
        async with asyncio.TaskGroup() as tasks:
            for requests in to_leaders:
                tasks.create_task(requests.pump(work, meter, is_running))
    except BaseExceptionGroup as group:
        # Raise only the first error of the group. Before Python 3.11.4, `except*` would wrap the error in a group
        # again.
        known, others = group.split(BarnabasError)
        if known is None or others is not None:
            raise
        raise known.exceptions[0] from None


class _Work:
    """The batches to send, which the connections to all brokers share. `records` is None if the number is unlimited."""

    def __init__(self, batches: Sequence[list[bytes]], records: int | None) -> None:
        self._batches: Iterator[list[bytes]] = itertools.cycle(batches)
        self._left = records
        self._sizes = {id(batch): sum(map(len, batch)) for batch in batches}

    def take(self) -> tuple[list[bytes], int] | None:
        """Return the next batch and the total size of its values in bytes. Return None if there are no more batches."""
        batch = next(self._batches)
        if self._left is None:
            return batch, self._sizes[id(batch)]
        if self._left >= len(batch):
            self._left -= len(batch)
            return batch, self._sizes[id(batch)]
        if not self._left:
            return None
        rest = batch[: self._left]
        self._left = 0
        return rest, sum(map(len, rest))


class _LeaderRequests:
    def __init__(self, job: PipelineJob, leader: Leader, config: ClientConfig, version: int) -> None:
        self.pipe: FramePipe
        self._acks = job.acks
        self._in_flight_max = job.in_flight
        self._compression = Compression[job.compression.upper()]
        self._timeout_s = config.request_timeout_ms / 1000
        self._client_id = config.client_id
        self._sent = 0
        self._answers = AnswerReader(job.topic, version)
        self._fence_answered = False
        self._heads: Iterator[Callable[[int, int], bytes]] = itertools.cycle(
            FramePattern(
                job.topic,
                partition,
                acks=job.acks,
                timeout_ms=PRODUCE_TIMEOUT_MS,
                version=version,
                client_id=config.client_id,
            ).head
            for partition in leader.partitions
        )

    @classmethod
    async def open(cls, job: PipelineJob, leader: Leader, config: ClientConfig) -> _LeaderRequests:
        """Ask the broker for its version of Produce, and open the pipe."""
        connection = await dial(
            leader.host,
            leader.port,
            client_id=config.client_id,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            software_version=__version__,
        )
        version = min(connection.version_for(ProduceRequest), VERSION_MAX)
        connection.close()
        requests = cls(job, leader, config, version)
        requests.pipe = await FramePipe.open(leader.host, leader.port, requests._on_bytes)
        return requests

    def _on_bytes(self, data: bytes) -> None:
        if self._acks:
            self._answers.feed(data)
        else:
            self._fence_answered = True

    @property
    def _room(self) -> int:
        """The number of requests that may be sent now."""
        if not self.pipe.writable:
            return 0
        if not self._acks:
            return self._in_flight_max
        return self._in_flight_max - (self._sent - self._answers.answered)

    async def pump(self, work: _Work, meter: Meter, is_running: Callable[[], bool]) -> None:
        """Send all requests, then wait for the outstanding responses."""
        enough = max(1, self._in_flight_max // 4)
        while is_running():
            room = self._room
            if room < enough:
                await self.pipe.wait_for_change(self._timeout_s)
                continue
            frames, records, size = self._burst(work, room if self._acks else None, meter.clock.time_ms())
            if not records:
                break
            self.pipe.write(frames)
            meter.add(records, size)
            await asyncio.sleep(0)
        await self._settle()

    def _burst(self, work: _Work, requests_max: int | None, now_ms: int) -> tuple[bytes, int, int]:
        """Encode requests. Return the frames, the number of records, and the total size of the values in bytes."""
        parts: list[bytes | bytearray | memoryview] = []
        records = value_bytes = frame_bytes = 0
        sent, heads, compression = self._sent, self._heads, self._compression
        last = sent + (1 << 30 if requests_max is None else requests_max)
        while sent < last and frame_bytes < BURST_BYTES:
            taken = work.take()
            if taken is None:
                break
            values, size = taken
            builder = BatchBuilder(compression)
            if len(values) == 1:
                builder.append(now_ms, None, values[0])
            else:
                builder.append_many(now_ms, values)
            batch = builder.build()
            sent += 1
            batch_bytes = len(batch)
            parts += (next(heads)(sent & CORRELATION_ID_MAX, batch_bytes), batch)
            frame_bytes += batch_bytes
            records += len(values)
            value_bytes += size
        self._sent = sent
        return b"".join(parts), records, value_bytes

    async def _settle(self) -> None:
        """Wait until the broker has processed all requests."""
        if self._acks:
            while self._answers.answered < self._sent:
                await self.pipe.wait_for_change(self._timeout_s)
            return
        self._fence_answered = False
        fence = request_frame(ApiVersionsRequest(), 0, CORRELATION_ID_MAX, self._client_id)
        self.pipe.write(b"".join(bytes(memoryview(chunk)) for chunk in fence))  # type: ignore[arg-type]
        while not self._fence_answered:
            await self.pipe.wait_for_change(self._timeout_s)
