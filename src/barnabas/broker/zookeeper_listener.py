"""The ZooKeeper listener, which serves the broker's embedded metadata store to other processes with ZooKeeper's
protocol.

This module contains the network, time and thread handling for `coordination/zookeeper/server`. The metadata store's
thread runs the requests of a connection one by one, in short slices. `FairQueue` shares the thread among clients. At
most one slice waits for the thread at a time, so the broker's own calls run in between. The sessions are stored in the
file of the metadata store, so they survive a restart of the broker. Used from the event loop's thread.
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
"""The maximum size of a frame in bytes, which is ZooKeeper's default of `jute.maxbuffer`."""
QUEUED_BYTES_MAX = 64 * 1024 * 1024
REQUESTS_AT_ONCE = 64
"""The maximum number of waiting requests of a connection that are processed together."""
LIKELY_S_PER_BYTE = 5e-7
"""The expected duration of requests per byte, in seconds.

It is accurate for many small operations, and too high for large nodes.
"""
SWEEP_S = 0.25
"""The interval between checks for expired sessions, in seconds."""
log = logging.getLogger(__name__)


class _Connection(Client):
    """A client's connection, as the event loop's thread sees it."""

    def __init__(self, link: ConnectionContext, session_id: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(session_id, self._send)
        self.link = link
        self.is_replaced = False
        """True if another connection has resumed the session. The remaining requests of this connection are dropped."""
        self.is_busy = False
        self.share = Share()
        self._loop = loop
        self._out: deque[bytes] = deque()
        self._flushes = False

    def _send(self, frame: bytes) -> None:
        """Queue a frame for sending. Called on the metadata store's thread, which holds the store's lock."""
        if self.is_gone:
            return
        self._out.append(frame)
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        """Send all queued frames. A frame that is queued during this call is also sent, or schedules another flush."""
        self._flushes = False
        frames = [self._out.popleft() for _ in range(len(self._out))]
        if frames:
            self.link.push(frames)


class _Requests:
    """The request handler of one connection. The first request opens or resumes a session."""

    def __init__(self, listener: ZooKeeperListener, link: ConnectionContext) -> None:
        self._listener = listener
        self.link = link
        self.connection: _Connection | None = None

    def carry_out(self, frames: Sequence[Frame]) -> FrameReply:
        return self._listener.carry_out(frames, self)

    def note_request_behind(self) -> None:
        """Do nothing, because requests of this protocol never wait for later events."""

    def note_gone(self) -> None:
        if self.connection is not None:
            self._listener.forget(self.connection)


class ZooKeeperListener:
    """Serves a metadata store at an address.

    :param address: `[HOST:]PORT`, as in the setting `zookeeper.listener`.
    :param listen: creates a network listener.
    :param max_client_cnxns: the maximum number of connections per client address. 0 means that only their total number
        is limited.
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
        """The ended sessions that are still in the metadata store, with the last logged error of their removal."""
        self._given_up = 0
        """The number of sessions that were ended to make way for new sessions since the last call of `sweep`."""
        self._store: EmbeddedDatabase
        self._serving: Serving
        self._sessions: Sessions
        self._in_metadata_thread: InMetadataThread

    def listen(self) -> None:
        """Bind the address. Connections wait until `serve` is called.

        :raises OSError: the address is in use, or does not belong to this machine.
        """
        self.port = self._listener.listen(self.host, self.port)

    def serve(self, store: EmbeddedDatabase, in_metadata_thread: InMetadataThread) -> None:
        """Serve a metadata store.

        Clients can resume sessions from before a restart of the broker within the session timeouts.
        """
        self._store = store
        self._in_metadata_thread = in_metadata_thread
        # By changing the broker's nodes, a client could remove topics or the broker from the cluster.
        self._serving = Serving(store, paths.BROKER_ROOTS, self._clock.monotonic, paths.is_secret)
        self._sessions = Sessions(
            store.kept_sessions(),
            self._clock.monotonic(),
            lambda: os.urandom(answers.PASSWORD_BYTES),
            min(SESSIONS_MAX, SESSIONS_PER_CONNECTION * self._per_host_max),
        )
        self._listener.accept(lambda link: _Requests(self, link))
        log.info("serving the metadata store with ZooKeeper's protocol at %s", host_port(self.host, self.port))

    async def run(self) -> None:
        """End expired sessions until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.sweep()

    async def sweep(self) -> None:
        """End the sessions whose clients have sent nothing for the session timeout."""
        now_s = self._clock.monotonic()
        for session_id, connection in self._of_session.items():
            if connection.is_busy:
                # The client is waiting for this broker, so its session does not expire.
                self._sessions.hear(session_id, now_s)
        for session_id in self._sessions.sweep(now_s, SWEEP_S):
            log.info("session 0x%x of a ZooKeeper client expired", session_id)
            self._over[session_id] = ""
            self._replace(session_id, "its session has expired")
        self._given_up = 0
        for session_id in list(self._over):
            await self._end(session_id)

    async def _end(self, session_id: int) -> None:
        try:
            await self._in_metadata_thread(self._serving.end_session, session_id)
        except CoordinationError as error:
            if str(error) != self._over.get(session_id):
                log.warning(
                    "cannot remove ZooKeeper session 0x%x from the metadata store: %s; retrying", session_id, error
                )
                self._over[session_id] = str(error)
        else:
            self._over.pop(session_id, None)

    async def finish(self, timeout_s: float) -> None:
        """Close all connections after their current requests. Their sessions end when they time out."""
        await self._listener.finish(timeout_s)

    def close(self) -> None:
        """End all connections now."""
        self._listener.close()

    # -- connections ---------------------------------------------------------------------------------------

    def carry_out(self, frames: Sequence[Frame], requests: _Requests) -> FrameReply:
        """Process the requests of a connection. The first request opens or resumes a session."""
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
        """Run a slice of the requests when it is this client's turn."""
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
        """Open a session. At the session limit, end a session of the same client address that has no connection.

        :raises CoordinationError: the limit is reached, and all sessions of the client address have connections.
        """
        session = self._sessions.open(timeout_ms, now_s, self._clock.time_ms(), host)
        if isinstance(session, str):
            idle = self._sessions.give_up_idle(host, self._of_session)
            if idle is None:
                raise CoordinationError(session)
            if not self._given_up:
                log.warning(
                    "ending ZooKeeper sessions without a connection, to open new sessions of the same client "
                    "address: %s",
                    session,
                )
            self._given_up += 1
            self._over[idle] = ""
            session = self._sessions.open(timeout_ms, now_s, self._clock.time_ms(), host)
            assert not isinstance(session, str), "another session has ended"
        return session

    def _replace(self, session_id: int, reason: str) -> None:
        """Close the current connection of a session, if it has one. The connection's queued requests are dropped."""
        if before := self._of_session.get(session_id):
            before.is_replaced = True
            before.link.hang_up(reason)

    def _refuse(self, request: ConnectRequest, requests: _Requests) -> bytes:
        """Return the response for an expired session, and close the connection after sending it."""
        self._loop.call_soon(lambda: requests.link.hang_up(""))
        return answers.session_over(has_read_only=request.has_read_only)

    async def _end_and_refuse(self, request: ConnectRequest, requests: _Requests) -> Answer:
        """End the session of a client that has read changes that were lost in a power failure, so that the client reads
        all nodes again.
        """
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
        """Handle the end of a connection. Its session ends when it times out."""
        connection.is_gone = True
        if self._of_session.get(connection.session_id) is connection:
            del self._of_session[connection.session_id]
        self._in_metadata_thread(self._serving.forget, connection)
