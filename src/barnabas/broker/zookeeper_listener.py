"""A broker's own tree, served to other processes in ZooKeeper's client protocol: sockets, time and threads around
`coordination/zookeeper/server`.

Requests of a connection are carried out one after the other on the tree's thread, in short slices. Clients take turns,
those first that have had least of the thread, and at most one slice waits for it at a time: what the broker itself does
with the tree comes in between.
Sessions are kept in the tree's file, so they outlive a restart of the broker. Used from the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence

from barnabas.addresses import host_port, split_listener
from barnabas.broker.fair_queue import FairQueue, Share
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.clock import Clock
from barnabas.coordination import paths
from barnabas.coordination.embedded_database import EmbeddedDatabase
from barnabas.coordination.node_table import KeptSession
from barnabas.coordination.zookeeper.server import answers
from barnabas.coordination.zookeeper.server.requests import ConnectRequest, read_connect
from barnabas.coordination.zookeeper.server.serving import Client, Progress, Serving
from barnabas.coordination.zookeeper.server.sessions import (
    SESSIONS_MAX,
    SESSIONS_PER_CONNECTION,
    TIMEOUT_MS_MAX,
    Sessions,
)
from barnabas.errors import CoordinationError
from barnabas.net.listener import Listener
from barnabas.net.server_connection import Answer, ConnectionContext, Frame, FrameReply, Limits

FRAME_BYTES_MAX = 0xFFFFF
"""As ZooKeeper's `jute.maxbuffer`."""
QUEUED_BYTES_MAX = 64 * 1024 * 1024
REQUESTS_AT_ONCE = 64
"""So many requests of a connection are taken from those that wait."""
LIKELY_S_PER_BYTE = 5e-7
"""How long requests take: about this for each byte of many small operations, less for large nodes."""
SWEEP_S = 0.25
"""How often it is looked whose session is over."""
PROTECTED = (paths.BROKERS, paths.CONFIGS, paths.CLUSTER, paths.ADMIN, paths.PRODUCER_ID_BLOCK)
"""What belongs to the broker: its registration, topics, settings, ids. Clients read it. A client that could change it
would take topics, or the broker itself, out of the cluster."""

log = logging.getLogger(__name__)


class _Connection(Client):
    """A client's connection, seen from the event loop."""

    def __init__(self, link: ConnectionContext, session_id: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(session_id, self._send)
        self.link = link
        self.is_replaced = False
        """Its session goes on with another connection, which has asked already: what is left of this one is late."""
        self.is_busy = False
        self.share = Share()
        self._loop = loop
        self._out: deque[bytes] = deque()
        self._flushes = False

    def _send(self, frame: bytes) -> None:
        """Called under the tree's lock, on the tree's thread."""
        if self.is_gone:
            return
        self._out.append(frame)
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        """Send what is there. More that comes meanwhile is sent now, or has another flush coming."""
        self._flushes = False
        frames = [self._out.popleft() for _ in range(len(self._out))]
        if frames:
            self.link.push(frames)


class _Requests:
    """Carries out the requests of one connection; it has a session from the first request on."""

    def __init__(self, listener: ZooKeeperListener, link: ConnectionContext) -> None:
        self._listener = listener
        self.link = link
        self.connection: _Connection | None = None

    def carry_out(self, frames: Sequence[Frame]) -> FrameReply:
        return self._listener.carry_out(frames, self)

    def note_request_behind(self) -> None:
        """Requests of this protocol do not wait for others."""

    def note_gone(self) -> None:
        if self.connection is not None:
            self._listener.forget(self.connection)


class ZooKeeperListener:
    """Listens at an address; serves when a tree is there.

    :param address: `[HOST:]PORT`, as the setting `zookeeper.listener` has it.
    :param listen: makes a listener.
    :param max_client_cnxns: how many connections clients of one address may have; 0: as many as there may be in all.
    """

    def __init__(
        self, address: str, listen: Callable[[Limits], Listener], clock: Clock, max_client_cnxns: int = 0
    ) -> None:
        self.host, self.port = split_listener(address)
        self._clock = clock
        self._per_host_max = max_client_cnxns or SESSIONS_MAX
        self._queue = FairQueue(clock.monotonic)
        self._loop = asyncio.get_running_loop()
        self._listener = listen(
            Limits(
                frame_bytes_max=FRAME_BYTES_MAX,
                queued_bytes_max=QUEUED_BYTES_MAX,
                connections_max=lambda: SESSIONS_MAX,
                connections_per_host_max=lambda: self._per_host_max,
                idle_s_max=TIMEOUT_MS_MAX / 1000,
            )
        )
        self._of_session: dict[int, _Connection] = {}
        self._over: dict[int, str] = {}
        """Sessions that have ended for us, and not yet in the tree, with what was said of why not."""
        self._given_up = 0
        """How many sessions have gone for new ones since the last sweep."""
        self._store: EmbeddedDatabase
        self._serving: Serving
        self._sessions: Sessions
        self._in_metadata_thread: InMetadataThread

    def listen(self) -> None:
        """Begin to listen; connections wait until `serve` is called.

        :raises OSError: the address is in use or is not this machine's.
        """
        self.port = self._listener.listen(self.host, self.port)

    def serve(self, store: EmbeddedDatabase, in_metadata_thread: InMetadataThread) -> None:
        """Serve this tree; those who had a session when it was closed have their timeout to come back."""
        self._store = store
        self._in_metadata_thread = in_metadata_thread
        self._serving = Serving(store, PROTECTED, self._clock.monotonic)
        self._sessions = Sessions(
            store.kept_sessions(),
            self._clock.monotonic(),
            lambda: os.urandom(answers.PASSWORD_BYTES),
            min(SESSIONS_MAX, SESSIONS_PER_CONNECTION * self._per_host_max),
        )
        self._listener.accept(lambda link: _Requests(self, link))
        log.info("the tree is served in ZooKeeper's protocol at %s", host_port(self.host, self.port))

    async def run(self) -> None:
        """End sessions that are over, for ever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        """End those sessions of which nothing was heard for their timeouts."""
        now_s = self._clock.monotonic()
        for session_id, connection in self._of_session.items():
            if connection.is_busy:
                self._sessions.hear(session_id, now_s)  # it waits for us
        for session_id in self._sessions.sweep(now_s, SWEEP_S):
            log.info("session 0x%x with the tree is over: nothing was heard of it", session_id)
            self._over[session_id] = ""
            self._replace(session_id, "its session is over")
        self._given_up = 0
        for session_id in list(self._over):
            await self._end(session_id)

    async def _end(self, session_id: int) -> None:
        try:
            await self._in_metadata_thread(self._serving.end_session, session_id)
        except CoordinationError as error:
            if str(error) != self._over.get(session_id):
                log.warning("session 0x%x cannot be ended in the tree; tried again: %s", session_id, error)
                self._over[session_id] = str(error)
        else:
            self._over.pop(session_id, None)

    async def finish(self, timeout_s: float) -> None:
        """End all connections once what they have begun is done; their sessions stay for their timeouts."""
        await self._listener.finish(timeout_s)

    def close(self) -> None:
        """End all connections now."""
        self._listener.close()

    # -- connections ---------------------------------------------------------------------------------------

    def carry_out(self, frames: Sequence[Frame], requests: _Requests) -> FrameReply:
        """Carry out the requests of a connection; the first one asks for its session."""
        connection = requests.connection
        if connection is None:
            if requests.link.is_gone:
                return FrameReply(len(frames), [])
            return self._connect(read_connect(bytes(frames[0])), requests)
        if connection.is_replaced or connection.has_left:
            return FrameReply(len(frames), [])
        self._sessions.hear(connection.session_id, self._clock.monotonic())
        batch = [bytes(frames[number]) for number in range(min(len(frames), REQUESTS_AT_ONCE))]
        return FrameReply(len(batch), [], self._carry_out(connection, batch))

    async def _carry_out(self, connection: _Connection, batch: list[bytes]) -> Answer:
        connection.is_busy = True
        try:
            while batch and not connection.is_replaced:
                progress = await self._slice(connection, batch)
                del batch[: progress.answered]
                if progress.is_full or connection.has_left:
                    break
        finally:
            connection.is_busy = False
        if batch and not (connection.is_replaced or connection.has_left):
            connection.link.requeue([bytearray(each) for each in batch])
        if connection.has_left:
            if not self._store.is_kept(connection.session_id):
                self._sessions.end(connection.session_id)
            connection.link.hang_up("")
        return []

    async def _slice(self, connection: _Connection, batch: list[bytes]) -> Progress:
        """Carry out a slice of the requests when it is this client's turn."""
        progress: Progress = await self._queue.take(
            connection.share,
            LIKELY_S_PER_BYTE * sum(map(len, batch)),
            lambda: self._in_metadata_thread(self._serving.carry_out, connection, batch),
        )
        connection.flush()
        if connection.owns_nodes:
            self._sessions.note_owner(connection.session_id)
        return progress

    def _connect(self, request: ConnectRequest, requests: _Requests) -> FrameReply:
        now_s = self._clock.monotonic()
        if not request.session_id:
            session = self._open(request.timeout_ms, now_s, requests.link.endpoints.host)
            return FrameReply(1, [], self._begin(session, request, requests))
        found = self._sessions.find(request.session_id, request.password, now_s)
        if found is None:
            return FrameReply(1, [self._refuse(request, requests)])
        self._replace(found.id, "")
        if request.last_change > self._store.last_change:
            return FrameReply(1, [], self._end_and_refuse(request, requests))
        return FrameReply(1, [self._attach(found, request, requests)])

    def _open(self, timeout_ms: int, now_s: float, host: str) -> KeptSession:
        """Begin a session; where there may be no more, one of the same address that has no connection goes for it.

        :raises CoordinationError: there is none.
        """
        session = self._sessions.open(timeout_ms, now_s, self._clock.time_ms(), host)
        if isinstance(session, str):
            idle = self._sessions.give_up_idle(host, self._of_session)
            if idle is None:
                raise CoordinationError(session)
            if not self._given_up:
                log.warning("ending sessions that have no connection, for new ones of the same address: %s", session)
            self._given_up += 1
            self._over[idle] = ""
            session = self._sessions.open(timeout_ms, now_s, self._clock.time_ms(), host)
            assert not isinstance(session, str), "one has gone"
        return session

    def _replace(self, session_id: int, reason: str) -> None:
        """End the connection that a session has, if it has one; what it has sent and was not begun is not done."""
        if before := self._of_session.get(session_id):
            before.is_replaced = True
            before.link.hang_up(reason)

    def _refuse(self, request: ConnectRequest, requests: _Requests) -> bytes:
        """Return the answer that its session is over, and hang up once that is sent."""
        self._loop.call_soon(lambda: requests.link.hang_up(""))
        return answers.session_over(has_read_only=request.has_read_only)

    async def _end_and_refuse(self, request: ConnectRequest, requests: _Requests) -> Answer:
        """End the session of a client that has seen what a loss of power took back: it has to look anew."""
        session_id = request.session_id
        self._sessions.end(session_id)
        self._over[session_id] = ""
        await self._end(session_id)
        return [self._refuse(request, requests)]

    async def _begin(self, session: KeptSession, request: ConnectRequest, requests: _Requests) -> Answer:
        try:
            await self._in_metadata_thread(self._serving.keep_session, session)
        except CoordinationError:
            self._sessions.end(session.id)
            raise
        return [self._attach(session, request, requests)]

    def _attach(self, session: KeptSession, request: ConnectRequest, requests: _Requests) -> bytes:
        if not requests.link.is_gone:
            connection = _Connection(requests.link, session.id, self._loop)
            requests.connection = self._of_session[session.id] = connection
        return answers.connected(session.timeout_ms, session.id, session.password, has_read_only=request.has_read_only)

    def forget(self, connection: _Connection) -> None:
        """Note that a connection has ended; its session lasts until its timeout."""
        connection.is_gone = True
        if self._of_session.get(connection.session_id) is connection:
            del self._of_session[connection.session_id]
        self._in_metadata_thread(self._serving.forget, connection)
