"""A session with ZooKeeper servers through kazoo. The session is connected or disconnected, and finally closed or lost.

A session outlives its connections: while it is disconnected, kazoo tries the servers in turn, and calls wait. If the
servers receive no heartbeat within the session timeout, they end the session and delete its ephemeral nodes and
watches. kazoo alone would then start a new session without notifying callers. This class opens no further connection
instead. Each call raises `SessionLostError`, and the owner must create a new object.

If the response to a write is lost, the write may be in progress on another server, and the server of the next
connection may still return the state before the write. Therefore the session sends a `sync` before the next read, which
lets the new server catch up. After the `sync`, the write has been applied or never will be, because the servers reject
requests of the session's old connection. So a read after a lost response shows the final outcome of the write.

Threads: kazoo has a connection thread, which reports state changes, and a thread that calls watches and the callbacks
of `on_end` (the store's thread). All methods are thread-safe.
"""

from __future__ import annotations

import contextlib
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
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination import paths
from barnabas.coordination.metadata_store import Check, Create, Delete, MetadataStoreUnavailableError, Operation, Set
from barnabas.coordination.zookeeper.acls import acl_of, is_world_readable
from barnabas.coordination.zookeeper.answers import refuse
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.errors import ClosedError

CLOSE_TIMEOUT_S = 5.0
"""The maximum time that `close` waits for a response.

Without a response, the servers end the session after its timeout.
"""
EPHEMERAL = 1
SEQUENTIAL = 2
"""The flags of a request that creates a node."""
READS_AT_ONCE = 256
"""The maximum number of reads in flight for one call."""

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
"""The errors after which the outcome of a request is unknown: no response, or an internal error of a server.

Healthy servers return internal errors when a session ends during a request. MARSHALLINGERROR means that any exception
occurred in a server.
"""


class SessionLostError(MetadataStoreUnavailableError):
    """The session has ended, and its ephemeral nodes and watches no longer exist.

    The outcome of unfinished writes is unknown.
    """


class UnknownOutcomeError(MetadataStoreUnavailableError):
    """The connection was lost during a write, and the outcome of the write is unknown.

    The caller must read the nodes.
    """


class NoAnswerError(Exception):
    """The connection was lost between request and response."""


class _OneSessionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo ships no types
    """kazoo's handler with three changes.

    It opens no connection after the end of the session, it limits the wait for a server, and it secures connections.
    kazoo's own TLS would use the certificates of the operating system in addition to the given ones.
    """

    def __init__(self, connect_timeout_s: float, secure: Callable[[Any, str, float], Any] | None) -> None:
        super().__init__()
        self.is_over = False
        self._secure = secure
        self.tls_failure = ""
        """The reason of the last failed TLS handshake."""
        self.connect_timeout_s = connect_timeout_s
        """The maximum time to wait until a server accepts a connection, and until it responds to the first request."""

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_over:
            raise ConnectionRefusedError("the session has ended")
        # Without this limit, kazoo would wait for an unresponsive server for the whole session timeout.
        kwargs["timeout"] = min(kwargs.get("timeout", self.connect_timeout_s), self.connect_timeout_s)
        sock = super().create_connection(*args, **kwargs)
        if self._secure is None:
            return sock
        try:
            secured = self._secure(sock, kwargs["hostname"], kwargs["timeout"])
        except OSError as error:
            self.tls_failure = str(error)
            raise
        self.tls_failure = ""
        return secured

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets.

        kazoo's implementation creates an epoll object for each call, which takes most of the time of a request.
        """
        # A TLS connection may have decrypted bytes although its socket has none.
        pending = [each for each in readers if self._secure is not None and getattr(each, "pending", int)()]
        if pending:
            timeout_s = 0
        if not hasattr(select, "poll"):  # Windows
            can_read, can_write, failed = select.select(readers, writers, [], timeout_s)
            return [each for each in readers if each in can_read or each in pending], can_write, failed
        poll = select.poll()
        for sockets, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
            for each in sockets:
                poll.register(each, event)
        ready = {number for number, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
        ready.update(each.fileno() for each in pending)
        can_read, can_write = ([each for each in some if each.fileno() in ready] for some in (readers, writers))
        return can_read, can_write, []


def _found(path: str, answer: Any) -> Any:
    if isinstance(answer, kazoo.ZookeeperError):
        refuse(path, answer)
    return answer


class Deadline:
    """The time at which a call must end."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at = SYSTEM_CLOCK.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self._at - SYSTEM_CLOCK.monotonic())


_LOG_OF_CLIENT = logging.getLogger("barnabas.zookeeper.client")
"""The logger for kazoo's messages about each connection attempt.

It is disabled, because the session logs the important changes.
"""
_LOG_OF_CLIENT.setLevel(logging.CRITICAL)


class Session:
    """A session with ZooKeeper. It is open when the constructor returns.

    :raises MetadataStoreUnavailableError: no server granted a session in time.
    :raises NotAllowedError: the chroot is missing, and the session has no permission to create it.
    """

    def __init__(self, config: ZooKeeperConfig) -> None:
        address = config.address
        self._config = config
        self._name = str(address)
        self._connection_changed = threading.Condition()
        self._is_closed = False
        self._is_lost = False
        self._is_stopped = threading.Lock()
        self._on_end: list[Callable[[], None]] = []
        self.on_connected: Callable[[], None] = lambda: None
        """A function that the store's thread calls after each new connection."""
        self._tree_thread: threading.Thread | None = None
        self._sets_acl = config.set_acl
        self._is_broker = config.is_broker
        self._attempts = 1 + len(address.servers)
        """The number of connection attempts within the session timeout: one more than the number of servers."""
        self._handler = _OneSessionHandler(config.session_timeout_s / self._attempts, config.secure)
        self._client = KazooClient(
            address.hosts,
            timeout=config.session_timeout_s,
            handler=self._handler,
            auth_data=[("digest", config.auth)] if config.auth else None,
            # Consumers leave the chroot to the brokers, even if they create it.
            default_acl=self._acl_of("/") if config.is_broker else OPEN_ACL_UNSAFE,
            logger=_LOG_OF_CLIENT,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=1.5, max_delay=1.0, sleep_func=self._handler.sleep_func
            ),
        )
        self._client.add_listener(self._on_state)
        self.timeout_s = config.session_timeout_s
        """The session timeout that the servers have granted."""
        connection = self._client._connection
        connection._connect = self._note_granted_timeout(connection._connect)
        connection._invoke = self._answered_in_time(connection._invoke)
        connection._read_response = self._in_order(connection._read_response)
        self._doubts = self._settled = 0
        """The number of writes whose response was lost, and the number of these writes whose outcome is now final."""
        self._start(config.connection_timeout_s or config.session_timeout_s, address.chroot)
        self.session_id: int = self._client.client_id[0]
        self.writes = 0
        """The number of write requests that were sent."""

    def _start(self, timeout_s: float, chroot: str) -> None:
        deadline = Deadline(timeout_s)
        try:
            self._client.start(timeout_s)
        except KazooTimeoutError:
            failure = self._handler.tls_failure
            why = f"the last TLS handshake failed: {failure}" if failure else "check that it is running"
            raise MetadataStoreUnavailableError(
                f"ZooKeeper at {self._name} granted no session within {timeout_s:g} s; {why}"
            ) from None
        try:
            # kazoo adds the chroot to each path. So the chroot must be created before kazoo's client gets the chroot.
            if chroot:
                self.read(lambda client: client.ensure_path_async(chroot), deadline)
                self._client.chroot = chroot
            # This read initializes `last_change`: each response contains the number of the last change.
            self.read(lambda client: client.exists_async("/"), deadline)
            self._protect_secrets(deadline)
        except kazoo.ZookeeperError as refused:
            self.close()
            refuse(chroot or "/", refused)
        except BaseException:
            self.close()
            raise

    def _acl_of(self, path: str) -> Sequence[Any]:
        return acl_of(path) if self._sets_acl else OPEN_ACL_UNSAFE

    def _protect_secrets(self, deadline: Deadline) -> None:
        """Set the ACL of existing nodes with secrets, which an older version or a session without ACLs has created."""
        if not self._sets_acl or not self._is_broker:
            return
        (users,) = self.read_all([lambda client: client.get_children_async(paths.USER_CONFIGS)], deadline)
        names = () if isinstance(users, kazoo.NoNodeError) else _found(paths.USER_CONFIGS, users)
        found = [paths.DECOY_SECRET, *(f"{paths.USER_CONFIGS}/{name}" for name in names)]
        acls = self.read_all([lambda client, path=path: client.get_acls_async(path) for path in found], deadline)  # type: ignore[misc]
        open_to_all = [
            path
            for path, acl in zip(found, acls, strict=True)
            if not isinstance(acl, kazoo.NoNodeError) and is_world_readable(_found(path, acl)[0])
        ]
        for path in open_to_all:
            # Repeated after a lost response: a second time has the same effect.
            with contextlib.suppress(kazoo.NoNodeError):
                self.read(
                    lambda client, path=path: client.set_acls_async(path, acl_of(path)),  # type: ignore[misc]
                    deadline,
                )
        if open_to_all:
            _log.warning(
                "all clients of ZooKeeper could read %d nodes with secrets; only brokers can read them now; change the"
                " passwords of users",
                len(open_to_all),
            )

    def _note_granted_timeout(self, connect: Callable[..., tuple[float, float]]) -> Callable[..., tuple[float, float]]:
        """Wrap kazoo's connect function to get the granted session timeout, which is 1.5 times kazoo's read timeout."""

        def noting(*args: Any) -> tuple[float, float]:
            timeouts_ms = connect(*args)
            self.timeout_s = timeouts_ms[0] * 1.5 / 1000
            self._handler.connect_timeout_s = self.timeout_s / self._attempts
            return timeouts_ms

        return noting

    def _answered_in_time(self, invoke: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap kazoo's first request on a connection to limit the time to wait for the response.

        A starting server may accept a connection and never respond. With a single server, kazoo would wait until the
        session has expired.
        """

        def bounded(timeout_s: float, *args: Any, **kwargs: Any) -> Any:
            return invoke(min(timeout_s, self._handler.connect_timeout_s), *args, **kwargs)

        return bounded

    def _in_order(self, read_response: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap kazoo's function that reads a response, to close the connection after an unexpected response.

        Otherwise, an unexpected response would end kazoo's thread and the session. Unexpected responses occur if
        another process uses the same session on another connection, because the servers identify requests by session
        and request number.
        """

        def reading(header: Any, *args: Any) -> Any:
            asked = self._client._pending
            if not asked or asked[0][2] != header.xid:
                raise kazoo.ConnectionDropped(f"unexpected response to request {header.xid}, which is not the next one")
            return read_response(header, *args)

        return reading

    def expire(self, timeout_s: float) -> None:
        """End the session on the servers, as after its timeout. Tests of session losses use this method.

        A second connection takes the session over, and closes it.

        :raises MetadataStoreUnavailableError: no server accepted the second connection in time.
        """
        second = KazooClient(
            self._config.address.hosts,
            timeout=self.timeout_s,
            client_id=self._client.client_id,
            handler=_OneSessionHandler(timeout_s, self._config.secure),
            auth_data=[("digest", self._config.auth)] if self._config.auth else None,
            logger=_LOG_OF_CLIENT,
        )
        try:
            second.start(timeout_s)
        except KazooTimeoutError:
            raise MetadataStoreUnavailableError(f"ZooKeeper did not respond within {timeout_s:g} s") from None
        finally:
            second.stop()
            second.close()

    @property
    def last_change(self) -> int:
        """The number of the last change that this session has seen (ZooKeeper's zxid)."""
        return int(self._client.last_zxid)

    # -- reads and writes -----------------------------------------------------------------------------------

    def read(self, send: Callable[[KazooClient], Any], deadline: Deadline) -> Any:
        """Send a read request and return the response. After a lost connection, send the request again.

        :raises MetadataStoreUnavailableError: no response in time.
        """
        while True:
            self._wait_until_settled(deadline)
            try:
                return self._answer(send(self._client), deadline)
            except NoAnswerError:
                continue

    def _wait_until_settled(self, deadline: Deadline) -> None:
        """Wait for a connection to a server that has applied all earlier writes of this session.

        :raises MetadataStoreUnavailableError: there is no such connection in time, or the session is lost.
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
        """Send several reads, with many in flight at the same time.

        The result of a rejected read is its `ZookeeperError`.

        The deadline applies to the first batch of reads. Each later batch has the same time limit, counted from its
        start.
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
        """Send a transaction once and return kazoo's results: values or errors.

        :raises NoAnswerError: the connection was lost; the outcome is unknown.
        :raises UnknownOutcomeError: no response in time; the outcome is unknown.
        """
        self.wait_until_connected(deadline)
        transaction = self._client.transaction()
        # kazoo's own methods would remove the final `/` from the path of a sequential node whose name consists of
        # digits only.
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
            raise UnknownOutcomeError(f"{error}; the outcome of the write is unknown") from None
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
                return requests.Create(path, bytes(data), self._acl_of(operation.path), flags)
            case Set(_, data, version):
                return requests.SetData(path, bytes(data), version)
            case Delete(_, version):
                return requests.Delete(path, version)
            case Check(_, version):
                return requests.CheckVersion(path, version)

    def wait_until_connected(self, deadline: Deadline) -> None:
        """Wait for a connection.

        :raises MetadataStoreUnavailableError: there is no connection in time, or the session is lost.
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
        """Raise `ClosedError` or `SessionLostError` if the session has ended."""
        if self._is_closed:
            raise ClosedError(f"the session with ZooKeeper at {self._name} is closed")
        if self._is_lost:
            raise SessionLostError(f"the session with ZooKeeper at {self._name} is lost; open a new one")

    # -- its life ------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if the session is closed or lost."""
        return self._is_closed or self._is_lost

    def on_end(self, call: Callable[[], None]) -> None:
        """Register a function that the store's thread calls once when the session is lost.

        If it is already lost, the thread calls the function soon.
        """
        with self._connection_changed:
            if not self._is_lost:
                self._on_end.append(call)
                return
        self._handler.spawn(self._call, call)

    def call_later(self, call: Callable[[], None]) -> None:
        """Call a function on the store's thread, after all events that have already arrived."""
        self._handler.dispatch_callback(Callback("session", call, ()))

    def close(self) -> None:
        """End the session and wait for its end. If the store's thread calls this method, do not wait."""
        with self._connection_changed:
            self._is_closed = True
            self._connection_changed.notify_all()
        self._stop()

    def _on_state(self, state: str) -> None:
        """Process a state change of kazoo. kazoo's connection thread opens no connection before this method returns."""
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
        """End a session after a server has reported that it is expired, but has not closed the connection.

        This happens if the session was closed on another connection to the same server. kazoo ignores these errors.

        :raises SessionLostError: the session is lost. If the session is closed, the method raises `ClosedError`
            instead.
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
        except Exception:  # noqa: BLE001 - an error of one callback must not stop the others
            _log.exception("callback for the end of the ZooKeeper session failed; other callbacks are still called")

    def _stop(self) -> None:
        """End kazoo's threads, at most once. The method does not wait if one of these threads calls it."""
        if not self._is_stopped.acquire(blocking=False):
            return
        stopping = threading.Thread(target=self._stop_client, name="barnabas-zookeeper-stop", daemon=True)
        stopping.start()
        if threading.current_thread() is not self._tree_thread:
            # An unresponsive server keeps kazoo's threads alive for the whole session timeout.
            stopping.join(CLOSE_TIMEOUT_S)

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception:  # noqa: BLE001 - kazoo documents no exceptions; the session ends after its timeout
            _log.exception("the session with ZooKeeper at %s did not close cleanly; it ends at its timeout", self._name)
