"""An accepted connection, and the limits that all connections of a listener share. The requests of a connection are
executed one after the other, and their responses are sent in order. A request that has to wait (a long poll) also
delays the later requests of its connection, as in Kafka. Responses that are ready together are sent together.

The connection stops reading while `REQUESTS_WAITING_MAX` requests or `WAITING_BYTES_MAX` bytes of requests are queued.
Queued requests wait for an earlier request, or for the client to read its responses. The connection also stops reading
while there is no memory for a large request. So TCP flow control slows down a client that sends too fast or does not
read.

If a client exceeds a quota, the broker responds at once, and the connection is muted: for some time, it reads nothing
and executes no requests (KIP-219). If other connections wait for memory, a muted connection executes the requests that
it has received, so that they occupy no memory.

A waiting request releases the memory of its frame (`ConnectionContext.release_frame`), and counts only the bytes that
it keeps. A connection does not read a large request after a waiting request. If other connections wait for memory, the
listener closes a connection whose complete requests wait for a request that only the same client can complete.

A completely received request is executed completely, even if its client has disconnected. Work for this client alone,
such as a wait for records or for a group, ends with the connection.

Limits that Kafka also has are named after Kafka's settings. The listener checks all deadlines in one periodic sweep,
without timers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.addresses import host_port
from barnabas.errors import BarnabasError, MalformedMessageError
from barnabas.log_lines import LimitedLog, LogEvent, event
from barnabas.net.stream import RECEIVE_BYTES, FrameReader, OpenStream
from barnabas.protocol.codec import Chunk
from barnabas.security.principal import DistinguishedName

log = logging.getLogger(__name__)

OnMemory: TypeAlias = "Callable[[int], None]"
"""A callback that receives the requested size when the memory is available."""


class _Waiter(NamedTuple):
    size: int
    held: int
    go_on: OnMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one listener.

    `frame_bytes_max`: the maximum size of a request (`socket.request.max.bytes`). `queued_bytes_max`: the maximum bytes
    of requests in memory over all connections (`queued.max.request.bytes`). `connections_max`: returns the maximum
    number of open connections, from `max.connections` and the limit of open files. `connections_per_host_max`: returns
    the maximum number from one address (`max.connections.per.ip`). Both limits can change while the broker runs.
    `idle_s_max`: the maximum idle time of a connection (`connections.max.idle.ms`). `partial_frame_s_max`: the maximum
    time from the first to the last byte of a request; a large request may take longer. `authentication_s_max`: the
    maximum time for the TLS handshake, and for the authentication after it. `must_authenticate`: True if clients have
    small limits until `ConnectionContext.admit`. `connections_per_s_max`: returns the maximum number of new connections
    per second (`max.connection.creation.rate`), and `connections_per_s_of` that from an address (the quota
    `connection_creation_rate`). `own_connections_per_s_max` is that of this listener alone. None means no limit.
    """

    frame_bytes_max: int = 100 * 1024 * 1024
    queued_bytes_max: int = 512 * 1024 * 1024
    connections_max: Callable[[], int] = lambda: 10_000
    connections_per_host_max: Callable[[], int] = lambda: 10_000
    idle_s_max: float = 600.0
    partial_frame_s_max: float = 30.0
    authentication_s_max: float = 10.0
    must_authenticate: bool = False
    connections_per_s_max: Callable[[], float | None] = lambda: None
    connections_per_s_of: Callable[[str], float | None] = lambda _host: None
    own_connections_per_s_max: float | None = None


class RequestMemory:
    """The memory of requests over all connections: requests that arrive, are queued, or are executed.

    A large request counts with its announced size. If there is not enough memory, its connection waits in line, and is
    not read in the meantime. So every request that is being read can be completed. All requests together stay within
    the limit, except for the few received bytes of requests in line. Small requests count, too, but never wait.
    Requests above 1/`MEDIUM_PARTS` of the memory are large. They leave 1/`KEPT_PARTS` of the memory to other requests,
    which overtake large requests in line. So a client that announces large requests and sends little delays only
    clients with equally large requests.
    """

    MEDIUM_PARTS = 64
    KEPT_PARTS = 8

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._large: deque[_Waiter] = deque()
        self._others: deque[_Waiter] = deque()
        self._under_way = 0
        self._held_in_line = 0
        self._is_letting_go_on = False
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.used_bytes > self._bytes_max

    @property
    def is_waited_for(self) -> bool:
        """True if a request waits in line for memory."""
        return bool(self._large or self._others)

    def change(self, difference: int) -> None:
        """Add `size`, which may be negative, to the number of used bytes. Freed memory goes to the first requests in
        line.
        """
        self.used_bytes += difference
        if difference < 0:
            self._let_go_on()

    def reserve(self, size: int, go_on: OnMemory, *, held: int = 0) -> bool:
        """Reserve memory for the rest of a large request, or put the request in line.

        :param size: the size of the rest, in bytes. With 0, nothing is reserved, and the result is True unless the
            limit is exceeded.
        :param held: the number of bytes of the request that have already arrived. They stay in memory while the request
            is in line.
        :param go_on: called with `size` once the memory is reserved; not called if the result is True.
        :returns: True if the memory is available now.
        """
        line = self._large if self.is_large(size) else self._others
        if not line and self._fits(size):
            self._take(size)
            return True
        line.append(_Waiter(size, held, go_on))
        self._held_in_line += held
        return False

    def arrived(self) -> None:
        """Record that a request with reserved memory has arrived completely, or will not arrive any more."""
        self._under_way -= 1
        self._let_go_on()

    def give_up(self, go_on: OnMemory) -> None:
        """Remove a request from the line."""
        for line in (self._large, self._others):
            for waiter in [waiter for waiter in line if waiter.go_on == go_on]:
                line.remove(waiter)
                self._held_in_line -= waiter.held

    def is_large(self, size: int) -> bool:
        """Return whether a request of this size is large."""
        return size > self._bytes_max // self.MEDIUM_PARTS

    def _fits(self, size: int) -> bool:
        kept = self._bytes_max // self.KEPT_PARTS if self.is_large(size) else 0
        used = self.used_bytes - self._held_in_line
        if used + size <= self._bytes_max - kept:
            return True
        # Let one request exceed the limit if it is the only reserved request: a request nearly as large as the memory
        # would otherwise wait forever.
        return size > 0 and not self._under_way and used <= self._bytes_max // 2

    def _take(self, size: int) -> None:
        self.used_bytes += size
        self._under_way += size > 0

    def _let_go_on(self) -> None:
        if self._is_letting_go_on:
            return  # this method was called by `go_on` below, whose loop checks again
        self._is_letting_go_on = True
        try:
            while waiter := self._next():
                self._held_in_line -= waiter.held
                self._take(waiter.size)
                waiter.go_on(waiter.size)
        finally:
            self._is_letting_go_on = False

    def _next(self) -> _Waiter | None:
        for line in (self._others, self._large):
            if line and self._fits(line[0].size):
                return line.popleft()
        return None


class WaitingMemory:
    """The bytes that waiting requests keep, over all connections.

    A request that waits for records, for a group or for replicas may wait for minutes, so its frame leaves
    `RequestMemory`. The request then counts here, with the bytes that it still needs.

    :param bytes_max: the limit, which is 1/`PARTS` of the memory for executing requests.
    """

    PARTS = 4

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, size: int) -> bool:
        """Add `size` bytes. Return False, without adding them, if they would exceed the limit."""
        if self.used_bytes + size > self.bytes_max:
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Subtract `size` bytes."""
        self.used_bytes -= size


REQUESTS_WAITING_MAX = 64
WAITING_BYTES_MAX = 1024 * 1024
TURN_S = 0.005
"""The time in seconds after which a connection yields to the event loop, so that it can serve other connections."""
UNSENT_BYTES_MAX = 1024 * 1024
UNAUTHENTICATED_FRAME_BYTES_MAX = 32 * 1024
"""The maximum size of a request of a client that has not authenticated. A token has at most 16 KB."""
UNAUTHENTICATED_BYTES_MAX = 64 * 1024
"""The maximum size of all requests in memory of a client that has not authenticated."""
UNAUTHENTICATED_REQUESTS_MAX = 32
"""The maximum number of requests of a client until it has authenticated. An authentication needs four."""
SMALL_BYTES = 64 * 1024
"""The maximum size in bytes of a small request. A connection reads small requests even if other connections wait for
memory.
"""
COPIED_BYTES_MAX = RECEIVE_BYTES // 2
SLOWEST_BYTES_PER_S = 64 * 1024
"""The minimum rate at which a large request must arrive. A request at this rate or above does not time out."""
STALLED_S = 1.0
"""The time in seconds after which a request that arrives too slowly loses its reserved memory to requests in line."""

UNREAD_BYTES = 64 * 1024
"""The maximum size of unread responses for which a connection is never closed."""

Frame = bytearray | memoryview
Answer: TypeAlias = "list[Chunk]"
"""The chunks of response frames. The list is empty for a request without a response."""


class FrameReply(NamedTuple):
    """The reply to the first queued request frames: one frame, or several that the handler has executed together."""

    frame_count: int
    """The number of frames that the handler has executed; at least one."""
    answer: Answer
    later: Awaitable[Answer] | None = None
    """An awaitable for the rest of the response, if the request has to wait; None otherwise."""
    ends_with_client: bool = False
    """True if the wait must end when the client disconnects, because only this client needs its result."""


class Endpoints(NamedTuple):
    """The two ends of an accepted connection."""

    host: str
    port: int
    """The port of the client."""
    local_host: str
    """The address of this machine to which the client connected."""
    subject: DistinguishedName | None = None
    """The subject of the client's certificate; None without TLS or without a certificate."""

    @property
    def address(self) -> str:
        """The client's host and port."""
        return host_port(self.host, self.port)


class RequestHandler(Protocol):
    """Executes the requests of one connection."""

    def carry_out(self, frames: Sequence[Frame]) -> FrameReply:
        """Execute the first queued request, together with any following requests that can be batched with it.

        The handler may write into the frames, but must not keep them.

        :raises BarnabasError: the request failed and has no error response; the connection is closed.
        """
        ...

    def note_request_behind(self) -> None:
        """Called when another request has arrived while a request of the connection waits."""
        ...

    def note_gone(self) -> None:
        """Called when the connection has ended."""
        ...


class ConnectionContext(Protocol):
    """The interface of a connection for its request handler."""

    @property
    def endpoints(self) -> Endpoints:
        """The addresses of both ends."""
        ...

    @property
    def is_gone(self) -> bool:
        """True if the connection has ended."""
        ...

    def release_frame(self, size: int) -> bool:
        """Mark the executing request as waiting, with `size` bytes in memory instead of its frame.

        Call this when the request no longer needs its frame.

        :returns: False if waiting requests already keep the maximum memory.
        """
        ...

    def requeue(self, frames: Sequence[Frame]) -> None:
        """Put requests that the handler has taken but not started back to the front of the queue, until the client has
        read its responses. Call this before the waiting request completes.
        """
        ...

    def push(self, chunks: Iterable[Chunk]) -> None:
        """Send bytes that are not the response to a request, as in ZooKeeper's protocol."""
        ...

    def hang_up(self, reason: str) -> None:
        """Close the connection; log the reason unless it is empty."""
        ...

    def admit(self) -> None:
        """End the limits of clients that have not authenticated."""
        ...

    def close_after_response(self, reason: str) -> None:
        """Close the connection after the response to the executing request; start no later request."""
        ...

    def mute(self, seconds: float) -> None:
        """Read and execute no further requests for some time, because the client has exceeded a quota (KIP-219)."""
        ...


HandlerFactory: TypeAlias = "Callable[[ConnectionContext], RequestHandler]"
"""Creates the handler of an accepted connection."""


class Unread(NamedTuple):
    """The amount of responses that a client has not read. The connection with the greatest value is closed first."""

    is_stuck: bool
    """True if the client has read nothing since the last check."""
    unread_bytes: int


class Acceptor(Protocol):
    """The interface of the listener for its connections, with the state that they share."""

    new_handler: HandlerFactory
    limits: Limits
    loop: asyncio.AbstractEventLoop
    memory: RequestMemory
    waiting_memory: WaitingMemory
    stranger_log: LimitedLog
    """The log for the ends of connections whose clients have not authenticated."""
    is_finishing: bool
    """True if the listener is closing, so that no further request starts."""

    def forget(self, connection: ServerConnection) -> None:
        """Called when the connection has ended and its requests are completed."""


class ServerConnection:
    """A connection of a listener. Use it only from the thread of the event loop."""

    __slots__ = (
        "_answered_bytes",
        "_answering",
        "_authenticates_until_s",
        "_closing_reason",
        "_ends_with_client",
        "_frames",
        "_handler",
        "_held_bytes",
        "_in_line",
        "_in_the_way_since_s",
        "_is_waiting",
        "_kept_bytes",
        "_listener",
        "_mark",
        "_muted_until_s",
        "_partial_since_s",
        "_reader",
        "_reserved",
        "_scheduled",
        "_stranger_requests",
        "_stream",
        "_unmuting",
        "_unread",
        "_used_at_s",
        "_waiting_bytes",
        "endpoints",
        "is_gone",
    )

    def __init__(self, listener: Acceptor, open_stream: OpenStream, endpoints: Endpoints) -> None:
        self._listener = listener
        self.endpoints = endpoints
        self.is_gone = False
        self._handler = listener.new_handler(self)
        self._frames: deque[Frame] = deque()
        limits = listener.limits
        must_authenticate = limits.must_authenticate
        self._reader = FrameReader(UNAUTHENTICATED_FRAME_BYTES_MAX if must_authenticate else limits.frame_bytes_max)
        self._stranger_requests = 0  # the number of requests before the authentication
        # The deadline of the authentication; 0 for an admitted client.
        self._authenticates_until_s = listener.loop.time() + limits.authentication_s_max if must_authenticate else 0.0
        self._muted_until_s = 0.0  # the time until which the connection does not read because of a quota; 0 if it reads
        self._unmuting: asyncio.TimerHandle | None = None
        self._closing_reason: str | None = None  # the reason to close after the response; None to stay open
        self._answering: asyncio.Task[None] | None = None
        self._ends_with_client = False  # True if the executing request ends with its client
        self._scheduled = False
        self._in_line = False  # True while the connection waits in line for memory
        self._reserved = False  # True if memory is reserved for the whole incomplete frame
        self._mark = 0.0, 0  # the time of the last check for progress, and the number of bytes received by then
        self._waiting_bytes = 0  # the size of `_frames`
        self._answered_bytes = 0  # the size of the executing request, until it starts to wait
        self._is_waiting = False  # True if the executing request has released its frame
        self._kept_bytes = 0  # the bytes of the waiting request in `WaitingMemory`
        self._in_the_way_since_s = 0.0  # the time since which this connection blocks memory; 0 if it does not
        self._unread = 0  # the size of unread responses at the last check
        # the total number of bytes of this connection, including the incomplete frame, as last reported to the listener
        self._held_bytes = 0
        self._used_at_s = listener.loop.time()
        self._partial_since_s = 0.0
        self._stream = open_stream(self._on_bytes, self._on_drained, self._on_closed)

    @property
    def _log(self) -> logging.Logger | LimitedLog:
        return self._listener.stranger_log if self._authenticates_until_s else log

    @property
    def under_way(self) -> asyncio.Task[None] | None:
        """The task of the waiting request, or None."""
        return self._answering

    def close(self, reason: str = "") -> None:
        """End the connection; requests that have not started are dropped.

        :param reason: the reason to log. It is empty if the client has made no error.
        """
        if reason and self._stream.is_open:
            self._log.warning("closing the connection from %s: %s", self.endpoints.address, reason)
        self._drop_frames()
        self._stream.close()

    def finish(self) -> None:
        """Stop reading and start no request. Close the connection immediately, or after a request in progress that must
        be completed.
        """
        self._drop_frames()
        self._stream.pause_reading()
        if self._answering is None or self._ends_with_client:
            self._stream.close()

    def check_deadlines(self, now_s: float) -> None:
        """Close the connection if it has been idle for too long, or a single request takes too long to arrive."""
        if not self._stream.is_open:
            return
        limits = self._listener.limits
        if self._authenticates_until_s and now_s > self._authenticates_until_s:
            self.close(f"the client has not authenticated within {limits.authentication_s_max:g} s")
            return
        is_waited_for = self._listener.memory.is_waited_for
        if is_waited_for and self._is_in_the_way(now_s):
            self.close(
                f"{self._waiting_bytes} bytes of requests follow one that only this client can complete, while other"
                " connections wait for memory"
            )
            return
        if self._in_line:
            return
        if self._reserved and is_waited_for:
            self._give_back_if_stalled(now_s)
        if self._muted_until_s:
            self._partial_since_s = self._used_at_s = now_s  # restart the time limits, because the broker does not read
            if self._stream.has_ended():
                self._stream.close()
            elif is_waited_for and self._waiting_bytes > SMALL_BYTES and not self._answering and not self._scheduled:
                self._process(although_muted=True)
            return
        if self._reader.partial and self._is_waiting and not self._stream.is_reading:
            self._partial_since_s = now_s  # restart the time limit, because the broker delays the frame
        elif self._reader.partial:
            allowed_s = limits.partial_frame_s_max + self._reader.held_bytes / SLOWEST_BYTES_PER_S
            if now_s - self._partial_since_s > allowed_s:
                self.close(f"a request did not arrive whole within {allowed_s:.3g} s")
        elif not self._answering and now_s - self._used_at_s > limits.idle_s_max:
            log.debug("closing the connection from %s: no data for %g s", self.endpoints.address, limits.idle_s_max)
            self._stream.close()

    def look_at_unread(self) -> Unread:
        """Return the size of the responses that the client has not read, and remember it until the next check."""
        before, self._unread = self._unread, self._stream.unsent_memory_bytes if self._stream.is_open else 0
        if self._unread <= UNREAD_BYTES:
            return Unread(is_stuck=False, unread_bytes=0)
        return Unread(is_stuck=before >= UNREAD_BYTES and self._unread >= before, unread_bytes=self._unread)

    def _is_in_the_way(self, now_s: float) -> bool:
        """Return whether whole requests have waited for `STALLED_S` after a long poll, or after responses that the
        client does not read."""
        waits_for_client = (self._is_waiting and self._ends_with_client) or (
            not self._answering and self._stream.unsent_bytes > UNSENT_BYTES_MAX
        )
        if self._waiting_bytes <= SMALL_BYTES or not waits_for_client:
            self._in_the_way_since_s = 0.0
            return False
        self._in_the_way_since_s = self._in_the_way_since_s or now_s
        return now_s - self._in_the_way_since_s >= STALLED_S

    def _on_bytes(self, data: memoryview) -> None:
        self._used_at_s = self._listener.loop.time()
        was_partial = self._reader.partial
        try:
            # Small data is copied, so that a request that waits for long keeps only its own memory.
            frames = self._reader.feed_views(data if len(data) > COPIED_BYTES_MAX else memoryview(bytearray(data)))
        except BarnabasError as error:
            self._fail(error)
            return
        if frames and self._reserved:
            self._reserved = False
            self._listener.memory.arrived()
        if frames or not was_partial:
            self._partial_since_s = self._used_at_s
        self._frames.extend(frames)
        self._waiting_bytes += sum(map(len, frames))
        if self._authenticates_until_s and self._exceeds_limits_of_strangers(len(frames)):
            return
        if not self._answering and not self._scheduled:
            self._process()
        else:
            self._own_waiting_frames()
            self._hurry()
            self._read_on_or_wait()

    def _exceeds_limits_of_strangers(self, number: int) -> bool:
        """End the connection if its client sends too much before it has authenticated; return True if it has ended.

        :param number: the number of requests that have just arrived.
        """
        self._stranger_requests += number
        if self._stranger_requests > UNAUTHENTICATED_REQUESTS_MAX:
            self._fail(MalformedMessageError("the client sent too many requests before it authenticated"))
        elif self._count() > UNAUTHENTICATED_BYTES_MAX:
            self._fail(MalformedMessageError("the client sent too many bytes before it authenticated"))
        else:
            return False
        return True

    def _hurry(self) -> None:
        """Notify the handler if another request has arrived after the waiting request."""
        if self._frames:
            self._handler.note_request_behind()

    def _count(self) -> int:
        """Return the number of bytes that this connection holds, and report the change to `RequestMemory`."""
        reader = self._reader
        under_way = reader.announced_bytes if self._reserved else reader.held_bytes
        held = under_way + self._waiting_bytes + self._answered_bytes
        difference, self._held_bytes = held - self._held_bytes, held
        if difference:
            self._listener.memory.change(difference)
        return held

    def push(self, chunks: Iterable[Chunk]) -> None:
        if not self.is_gone:
            self._stream.send(chunks)

    def hang_up(self, reason: str) -> None:
        if not self.is_gone:
            self.close(reason)

    def admit(self) -> None:
        self._authenticates_until_s = 0.0
        self._reader.frame_bytes_max = self._listener.limits.frame_bytes_max

    def close_after_response(self, reason: str) -> None:
        self._closing_reason = reason

    def mute(self, seconds: float) -> None:
        if self.is_gone:
            return
        loop = self._listener.loop
        self._muted_until_s = max(self._muted_until_s, loop.time() + seconds)
        self._stream.pause_reading()
        if self._unmuting is None:
            self._unmuting = loop.call_at(self._muted_until_s, self._unmute)

    def _unmute(self) -> None:
        """Read again, unless the connection was muted again in the meantime."""
        loop = self._listener.loop
        if self._muted_until_s > loop.time():
            self._unmuting = loop.call_at(self._muted_until_s, self._unmute)
            return
        self._unmuting, self._muted_until_s = None, 0.0
        self._used_at_s = self._partial_since_s = loop.time()
        if self._frames and not self._answering and not self._scheduled:
            self._process()
        else:
            self._read_on_or_wait()

    def release_frame(self, size: int) -> bool:
        if self._answering is None:
            return True
        waiting_memory = self._listener.waiting_memory
        waiting_memory.give_back(self._kept_bytes)
        self._is_waiting = True
        if fits := waiting_memory.take(size):
            self._kept_bytes, self._answered_bytes = size, 0
        else:
            # The request stays in the memory for executing requests, which is limited, too.
            self._kept_bytes, self._answered_bytes = 0, min(size, self._answered_bytes)
        self._count()
        return fits

    def _read_on_or_wait(self, *, has_memory: bool = False) -> None:
        """Count the held bytes, and decide whether to continue reading.

        :param has_memory: True if the connection has just got memory and must not reserve again, because it would wait
            in line.
        """
        held = self._count()
        if not self._stream.is_open or self._in_line or self._listener.is_finishing:
            return
        if self._muted_until_s:
            self._stream.pause_reading()
            return
        too_many = len(self._frames) > REQUESTS_WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX
        if too_many or self._stream.unsent_bytes > UNSENT_BYTES_MAX:
            self._stream.pause_reading()
        elif has_memory or self._has_memory(held):
            self._stream.resume_reading()
        else:
            self._stream.pause_reading()

    def _has_memory(self, held: int) -> bool:
        """Return whether there is memory for the arriving request; otherwise put the connection in line."""
        if self._reserved or held <= SMALL_BYTES >= self._reader.announced_bytes:
            return True
        memory = self._listener.memory
        if self._is_waiting and memory.is_large(self._reader.announced_bytes):
            return False  # check again when the earlier request is completed
        is_large = self._reader.announced_bytes > SMALL_BYTES
        come = self._reader.held_bytes if is_large else 0
        missing = self._reader.announced_bytes - come if is_large else 0
        if memory.reserve(missing, self._on_memory, held=come):
            self._on_reserved(missing)
            return True
        self._in_line = True
        self._mark = self._listener.loop.time(), 0
        return False

    def _on_reserved(self, size: int) -> None:
        if size:
            self._reserved = True
            self._held_bytes += size
            self._mark = self._listener.loop.time(), self._reader.held_bytes

    def _on_memory(self, size: int) -> None:
        """Continue to read with the reserved memory. The time in line does not count towards the time limit of the
        request.
        """
        self._in_line = False
        self._partial_since_s += self._listener.loop.time() - self._mark[0]
        self._on_reserved(size)
        self._read_on_or_wait(has_memory=True)

    def _give_back_if_stalled(self, now_s: float) -> None:
        """Release the reserved memory of a request that arrives too slowly, and put it in line again."""
        since_s, held = self._mark
        if now_s - since_s < STALLED_S:
            return
        self._mark = now_s, self._reader.held_bytes
        if self._reader.held_bytes - held < (now_s - since_s) * SLOWEST_BYTES_PER_S:
            self._reserved = False
            self._count()
            self._listener.memory.arrived()
            self._read_on_or_wait()

    def _on_drained(self) -> None:
        self._used_at_s = self._listener.loop.time()
        if not self._answering and not self._scheduled:
            self._process()

    def _on_closed(self, error: Exception | None) -> None:
        self.is_gone = True
        self._handler.note_gone()
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        memory = self._listener.memory
        if self._in_line:
            memory.give_up(self._on_memory)
        if self._reserved:
            memory.arrived()
        self._in_line = self._reserved = False
        self._reader = FrameReader(0)
        if error:
            log.debug("connection from %s lost: %s", self.endpoints.address, error)
        if self._answering and self._ends_with_client:
            # Cancel in the next iteration, after the task's first step. A task that is cancelled earlier never starts
            # its coroutine, which causes a warning.
            self._listener.loop.call_soon(self._answering.cancel)
        self._go_on()

    def _drop_frames(self) -> None:
        self._frames.clear()
        self._waiting_bytes = 0

    def _process(self, *, although_muted: bool = False) -> None:
        """Execute queued requests until a request has to wait, or this turn ends.

        :param although_muted: True to execute them even while the connection is muted.
        """
        self._scheduled = False
        answers: list[Chunk] = []
        loop = self._listener.loop
        turn_ends_s = loop.time() + TURN_S
        try:
            while self._frames and self._closing_reason is None and self._stream.unsent_bytes <= UNSENT_BYTES_MAX:
                if self._muted_until_s and not although_muted:
                    break
                reply = self._handler.carry_out(self._frames)
                size = self._take(reply.frame_count)
                answers += reply.answer
                if reply.frame_count > 1 and answers:
                    # Send the finished responses now: the client can use them while the rest is executed.
                    self._stream.send(answers)
                    answers = []
                if reply.later is not None:
                    self._answered_bytes = size
                    self._ends_with_client = reply.ends_with_client
                    self._answering = loop.create_task(self._answer_later(reply.later))
                    self._hurry()
                    break
                if loop.time() > turn_ends_s:
                    break
        except Exception as error:  # noqa: BLE001 - any failure ends only this connection
            # The earlier requests were executed, so their responses must be sent.
            self._stream.send(answers)
            self._fail(error)
            return
        if answers:
            self._stream.send(answers)
        self._go_on()

    def _take(self, count: int) -> int:
        """Remove the first queued requests; return their size."""
        size = 0
        for _ in range(count):
            size += len(self._frames.popleft())
        self._waiting_bytes -= size
        return size

    def requeue(self, frames: Sequence[Frame]) -> None:
        if self._answering and not self._listener.is_finishing:
            self._frames.extendleft(reversed(frames))
            self._waiting_bytes += sum(map(len, frames))

    def _own_waiting_frames(self) -> None:
        """Copy queued requests that are views of a larger buffer, to release the buffer."""
        if self._frames and isinstance(self._frames[-1], memoryview):
            self._frames = deque(bytearray(f) if isinstance(f, memoryview) else f for f in self._frames)

    def _go_on(self) -> None:
        """Decide on the next step after requests were executed."""
        if self._closing_reason is not None and not self._answering and not self._stream.unsent_bytes:
            self.close(self._closing_reason)
        if self._is_at_rest():
            return
        can_go_on = not self._answering and not self._muted_until_s and self._stream.unsent_bytes <= UNSENT_BYTES_MAX
        if can_go_on and self._frames and not self._scheduled:
            self._scheduled = True
            self._listener.loop.call_soon(self._process)
        self._own_waiting_frames()
        self._read_on_or_wait()
        if not self._stream.is_open and not self._answering and not self._frames:
            self._listener.forget(self)

    def _is_at_rest(self) -> bool:
        """Return whether nothing is pending, because all received requests have their responses. This is the usual
        case.
        """
        stream = self._stream
        if self._frames or self._answering or self._held_bytes or self._reader.partial:
            return False
        return stream.is_reading and not stream.unsent_bytes

    async def _answer_later(self, waiting: Awaitable[Answer]) -> None:
        answer: Answer = []
        try:
            answer = await waiting
        except asyncio.CancelledError:
            self._end_answering()
            raise
        except Exception as error:  # noqa: BLE001 - any failure ends only this connection
            self._wait_no_more()
            self._fail(error)
            return
        if answer:
            self._stream.send(answer)
        self._end_answering()

    def _wait_no_more(self) -> None:
        self._answering = None
        self._answered_bytes = 0
        if self._is_waiting:
            self._is_waiting = False
            self._listener.waiting_memory.give_back(self._kept_bytes)
            self._kept_bytes = 0

    def _end_answering(self) -> None:
        self._wait_no_more()
        self._used_at_s = self._listener.loop.time()
        if self._frames:
            self._process()
        else:
            self._go_on()

    def _fail(self, error: Exception) -> None:
        """End the connection after an error of a request. Log an error of the client as a warning, and a defect of this
        program with its traceback.
        """
        if isinstance(error, BarnabasError):
            self._log.warning("closing the connection from %s: %s", self.endpoints.address, error)
        else:
            extra = event(LogEvent.UNEXPECTED_ERROR)
            log.error("a request from %s failed", self.endpoints.address, exc_info=error, extra=extra)
        self._drop_frames()
        if self._stream.is_open:
            self._stream.close(error)
        else:
            self._go_on()
