"""One session with the servers, by kazoo: connected, disconnected for a while, and at last closed or lost.

A session outlives its connections: while it is disconnected, kazoo goes through the servers until one answers, and
calls wait. The servers say that a session is lost when nothing was heard of it for its timeout; then its ephemeral
nodes and watches are gone. kazoo would begin another session by itself, under callers who still believe in the old
one; here no connection is made any more, every call raises `SessionLostError`, and the owner opens a new object.

A write that got no answer may be done a moment later: it may be with another server than the one that is asked next,
which then still tells what was before. So what is read after such a write is read behind a `sync`, which lets that
server catch up: by then the write is done, or never will be, since the servers refuse what a connection has left
behind. Who reads what has become of it, to act on that, can believe it.

Threads: kazoo has one for the connection, which tells of every change of state, and one that calls watches, the
"tree's own thread"; `on_end` is called from the latter. Methods may be called from any thread.
"""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization as requests
from kazoo.protocol.states import Callback, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination.metadata_store import Check, Create, Delete, MetadataStoreUnavailableError, Operation, Set
from barnabas.coordination.zookeeper.answers import refuse
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.errors import ClosedError

CLOSE_TIMEOUT_S = 5.0
"""How long `close` waits for servers that do not answer; they end the session by themselves then."""
EPHEMERAL = 1
SEQUENTIAL = 2
"""Flags of a request that creates a node."""
READS_AT_ONCE = 256
"""How many reads of one call are under way together."""

_log = logging.getLogger(__name__)

_LOST_ON_THE_WAY = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
    kazoo.ThrottledOpError,
    kazoo.MarshallingError,
    kazoo.SystemZookeeperError,
    kazoo.DataInconsistency,
)
"""No answer came, or one that says nothing of the tree: that a server failed over a request, which happens to sound
ones when a session ends meanwhile (MARSHALLINGERROR is its word for any exception of its own), is no verdict on it."""


class SessionLostError(MetadataStoreUnavailableError):
    """The session has ended: its ephemeral nodes and watches are gone. A write under way may have been done or not."""


class UnknownOutcomeError(MetadataStoreUnavailableError):
    """The connection was lost during a write, and it cannot be found out whether it was done: read, and decide."""


class NoAnswerError(Exception):
    """The connection was lost between request and answer."""


class _OneSessionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo ships no types
    """kazoo's threads and sockets, but for one session only, and with no wait that costs all of it."""

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self.is_over = False
        self.connect_timeout_s = connect_timeout_s
        """How long one server may take to accept a connection, and then to answer the first request on it."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_over:
            raise ConnectionRefusedError("the session has ended")
        # kazoo would wait for one server that does not answer as long as the session lasts.
        kwargs["timeout"] = min(kwargs.get("timeout", self.connect_timeout_s), self.connect_timeout_s)
        return super().create_connection(*args, **kwargs)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets. kazoo's own way makes an epoll for each call, which is most of what a request costs."""
        poll = select.poll()
        for sockets, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for each in sockets:
                poll.register(each, event)
        ready = {number for number, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
        can_read, can_write = ([each for each in some if each.fileno() in ready] for some in (readers, writers))
        return can_read, can_write, []


class Deadline:
    """The moment until which a call may take."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at = SYSTEM_CLOCK.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the seconds that are left, 0 where none are."""
        return max(0.0, self._at - SYSTEM_CLOCK.monotonic())


_LOG_OF_CLIENT = logging.getLogger("barnabas.zookeeper.client")
"""What kazoo says of each attempt to connect. What matters of it, whoever has the session says."""
_LOG_OF_CLIENT.setLevel(logging.CRITICAL)


class Session:
    """A session that is open when the object is made.

    :raises MetadataStoreUnavailableError: no server granted one in time.
    :raises NotAllowedError: the chroot is missing, and this session must not make it.
    """

    def __init__(self, config: ZooKeeperConfig) -> None:
        address = config.address
        self._name = str(address)
        self._connection_changed = threading.Condition()
        self._is_closed = False
        self._is_lost = False
        self._is_stopped = threading.Lock()
        self._on_end: list[Callable[[], None]] = []
        self.on_connected: Callable[[], None] = lambda: None
        """Called from the tree's thread when there is a connection again."""
        self._tree_thread: threading.Thread | None = None
        self._acl = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if config.set_acl else OPEN_ACL_UNSAFE
        self._attempts = 1 + len(address.servers)
        """The session lasts for so many attempts: one more than there are servers which might not answer."""
        self._handler = _OneSessionHandler(config.session_timeout_s / self._attempts)
        self._client = KazooClient(
            address.hosts,
            timeout=config.session_timeout_s,
            handler=self._handler,
            auth_data=[("digest", config.auth)] if config.auth else None,
            default_acl=self._acl,
            logger=_LOG_OF_CLIENT,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=1.5, max_delay=1.0, sleep_func=self._handler.sleep_func
            ),
        )
        self._client.add_listener(self._on_state)
        self.timeout_s = config.session_timeout_s
        """The session timeout that the servers granted."""
        connection = self._client._connection
        connection._connect = self._note_granted_timeout(connection._connect)
        connection._invoke = self._answered_in_time(connection._invoke)
        connection._read_response = self._in_order(connection._read_response)
        self._doubts = self._settled = 0
        """How many writes got no answer, and of how many of them it is certain by now whether they were done."""
        self._start(config.connection_timeout_s or config.session_timeout_s, address.chroot)
        self.session_id: int = self._client.client_id[0]
        self.writes = 0
        """How many requests that write were sent."""

    def _start(self, timeout_s: float, chroot: str) -> None:
        deadline = Deadline(timeout_s)
        try:
            self._client.start(timeout_s)
        except KazooTimeoutError:
            raise MetadataStoreUnavailableError(
                f"ZooKeeper at {self._name} granted no session within {timeout_s:g} s; does it run?"
            ) from None
        try:
            # kazoo prefixes every path with the chroot, so the node itself is made before it knows of one.
            if chroot:
                self.read(lambda client: client.ensure_path_async(chroot), deadline)
                self._client.chroot = chroot
            # A first answer tells the number of the tree's last change, which `last_change` is to return.
            self.read(lambda client: client.exists_async("/"), deadline)
        except kazoo.ZookeeperError as refused:
            self.close()
            refuse(chroot or "/", refused)
        except BaseException:
            self.close()
            raise

    def _note_granted_timeout(self, connect: Callable[..., tuple[float, float]]) -> Callable[..., tuple[float, float]]:
        """Wrap kazoo's way to connect: what the servers grant shows in its read timeout alone, two thirds of it."""

        def noting(*args: Any) -> tuple[float, float]:
            timeouts_ms = connect(*args)
            self.timeout_s = timeouts_ms[0] * 1.5 / 1000
            self._handler.connect_timeout_s = self.timeout_s / self._attempts
            return timeouts_ms

        return noting

    def _answered_in_time(self, invoke: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap kazoo's first exchange on a connection. A server may accept one while it is starting, and never answer
        on it; with one server, kazoo would wait until the session is over."""

        def bounded(timeout_s: float, *args: Any, **kwargs: Any) -> Any:
            return invoke(min(timeout_s, self._handler.connect_timeout_s), *args, **kwargs)

        return bounded

    def _in_order(self, read_response: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap kazoo's way to read an answer. One to another question than the one that is next says that this
        connection cannot be believed any more; kazoo's thread would end of it, and the session with it. They come so
        where somebody else uses the session on a connection of their own: the servers tell requests by session and
        number."""

        def reading(header: Any, *args: Any) -> Any:
            asked = self._client._pending
            if not asked or asked[0][2] != header.xid:
                raise kazoo.ConnectionDropped(f"an answer to request {header.xid}, which is not the next one")
            return read_response(header, *args)

        return reading

    @property
    def last_change(self) -> int:
        """The number of the last change of the tree that this session has heard of (ZooKeeper's zxid)."""
        return int(self._client.last_zxid)

    # -- reading and writing -------------------------------------------------------------------------------

    def read(self, send: Callable[[KazooClient], Any], deadline: Deadline) -> Any:
        """Send a request that changes nothing, again where the connection is lost meanwhile; return its answer.

        :raises MetadataStoreUnavailableError: there was none in time.
        """
        while True:
            self._wait_until_settled(deadline)
            try:
                return self._answer(send(self._client), deadline)
            except NoAnswerError:
                continue

    def _wait_until_settled(self, deadline: Deadline) -> None:
        """Return when there is a connection to a server that knows what has become of all that was written.

        :raises MetadataStoreUnavailableError: there was none in time, or the session is lost.
        """
        while True:
            self.wait_until_connected(deadline)
            doubts = self._doubts
            if doubts == self._settled:
                return
            try:
                self._answer(self._client.sync_async("/"), deadline)
            except NoAnswerError:
                continue
            with self._connection_changed:
                self._settled = max(self._settled, doubts)

    def read_all(self, sends: Sequence[Callable[[KazooClient], Any]], deadline: Deadline) -> list[Any]:
        """Do several reads, many at once; in place of an answer stands the `ZookeeperError` of one that was refused.

        The deadline is that of the first of them; those that are sent later have as long again.
        """
        answers: list[Any] = []
        for start in range(0, len(sends), READS_AT_ONCE):
            deadline = Deadline(deadline.timeout_s) if start else deadline
            part = sends[start : start + READS_AT_ONCE]
            self._wait_until_settled(deadline)
            requests = [send(self._client) for send in part]
            for send, request in zip(part, requests, strict=True):
                try:
                    answers.append(self._answer(request, deadline))
                except NoAnswerError:
                    answers.append(self._or_refusal(send, deadline))
                except kazoo.ZookeeperError as refused:
                    answers.append(refused)
        return answers

    def _or_refusal(self, send: Callable[[KazooClient], Any], deadline: Deadline) -> Any:
        try:
            return self.read(send, deadline)
        except kazoo.ZookeeperError as refused:
            return refused

    def write(self, operations: Sequence[Operation], deadline: Deadline) -> list[Any]:
        """Send a transaction once, and return its results as kazoo has them: values, or errors.

        :raises NoAnswerError: the connection was lost; it may have been done or not.
        :raises UnknownOutcomeError: no answer came in time.
        """
        self.wait_until_connected(deadline)
        transaction = self._client.transaction()
        # Not by its methods: they take the last `/` from the path of a sequential node whose name is the digits alone.
        transaction.operations += [self._request(operation) for operation in operations]
        with self._connection_changed:
            self.writes += 1
        try:
            results: list[Any] = self._answer(transaction.commit_async(), deadline)
        except (SessionLostError, ClosedError):
            raise
        except NoAnswerError:
            self._be_in_doubt()
            raise
        except MetadataStoreUnavailableError as error:
            self._be_in_doubt()
            raise UnknownOutcomeError(f"{error}; it may have been done or not") from None
        if any(isinstance(each, kazoo.SessionExpiredError) for each in results):
            self._lose()
        return results

    def _be_in_doubt(self) -> None:
        with self._connection_changed:
            self._doubts += 1

    def _request(self, operation: Operation) -> Any:
        path = self._client.chroot + operation.path if operation.path != "/" else self._client.chroot or "/"
        match operation:
            case Create(_, data, ephemeral, sequential):
                flags = (EPHEMERAL if ephemeral else 0) | (SEQUENTIAL if sequential else 0)
                return requests.Create(path, bytes(data), self._acl, flags)
            case Set(_, data, version):
                return requests.SetData(path, bytes(data), version)
            case Delete(_, version):
                return requests.Delete(path, version)
            case Check(_, version):
                return requests.CheckVersion(path, version)

    def wait_until_connected(self, deadline: Deadline) -> None:
        """Return when there is a connection.

        :raises MetadataStoreUnavailableError: there was none in time, or the session is lost.
        """
        with self._connection_changed:
            self._connection_changed.wait_for(
                lambda: self._client.connected or self._is_lost or self._is_closed, deadline.left_s()
            )
        self.check_alive()
        if not self._client.connected:
            raise self._unavailable(deadline)

    def _answer(self, request: Any, deadline: Deadline) -> Any:
        try:
            return request.get(timeout=deadline.left_s())
        except _LOST_ON_THE_WAY as error:
            if isinstance(error, kazoo.SessionExpiredError):
                self._lose()
            self.check_alive()
            raise NoAnswerError from None
        except KazooTimeoutError:
            self.check_alive()
            raise self._unavailable(deadline) from None

    def _unavailable(self, deadline: Deadline) -> MetadataStoreUnavailableError:
        return MetadataStoreUnavailableError(
            f"ZooKeeper at {self._name} did not answer within {deadline.timeout_s:g} s"
        )

    def check_alive(self) -> None:
        """Raise `ClosedError` or `SessionLostError` where the session is over."""
        if self._is_closed:
            raise ClosedError(f"the session with ZooKeeper at {self._name} is closed")
        if self._is_lost:
            raise SessionLostError(f"the session with ZooKeeper at {self._name} is lost; open a new one")

    # -- its life ------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it was closed or lost."""
        return self._is_closed or self._is_lost

    def on_end(self, call: Callable[[], None]) -> None:
        """Have something called once, when the session is lost, from the tree's thread; at once if it is lost."""
        with self._connection_changed:
            if not self._is_lost:
                self._on_end.append(call)
                return
        self._handler.spawn(self._call, call)

    def call_later(self, call: Callable[[], None]) -> None:
        """Have something called from the tree's thread, after all events that have come up to now."""
        self._handler.dispatch_callback(Callback("session", call, ()))

    def close(self) -> None:
        """End the session. From the tree's thread, end it without waiting."""
        with self._connection_changed:
            self._is_closed = True
            self._connection_changed.notify_all()
        self._stop()

    def _on_state(self, state: str) -> None:
        """Be told by kazoo's connection thread, which makes no connection before this returns."""
        with self._connection_changed:
            is_lost_now = state == KazooState.LOST and not self.is_over
            if is_lost_now:
                self._is_lost = True
            self._handler.is_over = self.is_over
            self._connection_changed.notify_all()
        if is_lost_now:
            self.call_later(self._end)
        elif state == KazooState.CONNECTED:
            self.call_later(self._connected)

    def _lose(self) -> None:
        """End a session that a server says is over, on a connection that it keeps all the same.

        So it is where the session was closed by another connection of that server: kazoo heeds neither the answer nor
        that to its pings.

        :raises SessionLostError: always, but for a session that is closed.
        """
        self._on_state(KazooState.LOST)
        self.check_alive()

    def _connected(self) -> None:
        self._tree_thread = threading.current_thread()
        self.on_connected()

    def _end(self) -> None:
        _log.warning("the session with ZooKeeper at %s is lost", self._name)
        with self._connection_changed:
            calls, self._on_end = self._on_end, []
        for call in calls:
            self._call(call)
        self._stop()

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - an error of whoever is told is its own; it must not silence the others
            _log.exception("what was to be told of the end of a session failed")

    def _stop(self) -> None:
        """End kazoo's threads, once; they cannot wait for themselves."""
        if not self._is_stopped.acquire(blocking=False):
            return
        stopping = threading.Thread(target=self._stop_client, name="barnabas-zookeeper-stop", daemon=True)
        stopping.start()
        if threading.current_thread() is not self._tree_thread:
            # A server that stands still keeps kazoo for as long as the session lasts.
            stopping.join(CLOSE_TIMEOUT_S)

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception:  # noqa: BLE001 - kazoo names none; the session ends by itself after its timeout
            _log.exception("the session with ZooKeeper at %s did not end in order", self._name)
