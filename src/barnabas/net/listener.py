"""Accepts client connections, within limits; a handler executes their requests.

An invalid frame ends its connection and is logged. It does not affect other connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from concurrent.futures import Executor
from functools import partial

from barnabas.errors import AuthenticationError
from barnabas.log_lines import LimitedLog, LogEvent, event
from barnabas.net.connection_rates import ConnectionRate, ConnectionRates
from barnabas.net.server_connection import (
    Endpoints,
    HandlerFactory,
    Limits,
    RequestMemory,
    ServerConnection,
    WaitingMemory,
)
from barnabas.net.stream import OpenStream, Stream
from barnabas.net.tls import TlsContext, TlsHandshake, peer_subject, reason_of_failure
from barnabas.net.tls_stream import TlsStream

ACCEPT_PAUSE_S = 0.5
SWEEP_S = 1.0

log = logging.getLogger(__name__)


class ConnectionCount:
    """The number of open connections, in total and from each address."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_host: Counter[str] = Counter()

    def admit(self, host: str) -> str | None:
        """Count a connection and return None, or return the reason to refuse it."""
        connections_max = self._limits.connections_max()
        if self._by_host.total() >= connections_max:
            return f"{connections_max} connections are open (max.connections, or the limit of open files)"
        if self._by_host[host] >= self._limits.connections_per_host_max():
            return f"{host} has {self._by_host[host]} connections open (max.connections.per.ip)"
        self._by_host[host] += 1
        return None

    def leave(self, host: str) -> None:
        """Count a connection that has ended."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


class ConnectionResources:
    """The connection counts and the memory of requests that listeners with the same limits share."""

    def __init__(self, limits: Limits) -> None:
        self.count = ConnectionCount(limits)
        self.rate = ConnectionRate(limits.connections_per_s_max)
        self.rates = ConnectionRates(limits.connections_per_s_of)
        self.memory = RequestMemory(limits.queued_bytes_max)
        self.waiting_memory = WaitingMemory(limits.queued_bytes_max // WaitingMemory.PARTS)


class Listener:
    """Accepts connections on one address; a handler responds to their requests.

    Use it from the thread of the event loop in which it was created.

    :param resources: the memory and the connection counts that several listeners share; None for its own.
    :param tls: the context of TLS connections, and the threads for handshakes; None for connections without TLS.
    """

    new_handler: HandlerFactory

    def __init__(
        self,
        limits: Limits,
        resources: ConnectionResources | None = None,
        tls: tuple[TlsContext, Executor] | None = None,
    ) -> None:
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self._tls = tls
        self._handshakes: dict[TlsHandshake, float] = {}  # the handshakes in progress, with their deadlines
        resources = resources or ConnectionResources(limits)
        self.memory = resources.memory
        self.waiting_memory = resources.waiting_memory
        self._count = resources.count
        self._rates = resources.rates
        self._all_rates = (resources.rate, ConnectionRate(lambda: limits.own_connections_per_s_max))
        self._waiting: dict[socket.socket, tuple[Endpoints, asyncio.TimerHandle]] = {}  # those above their rate
        self._connections: set[ServerConnection] = set()
        self.accepted_count = 0
        """The number of accepted connections since the start, without refused connections."""
        self.refused_count = 0
        """The number of connections that the limits refused since the start."""
        self.throttled_count = 0
        """The number of connections that waited because their address exceeded its rate."""
        self.failed_handshake_count = 0
        """The number of TLS handshakes that failed since the start."""
        self._handshake_log = LimitedLog(log, self.loop.time, "%d further TLS handshakes failed")
        self._refusal_log = LimitedLog(log, self.loop.time, "refused %d further connections")
        self.stranger_log = LimitedLog(
            log, self.loop.time, "closed %d further connections of clients that had not authenticated"
        )
        self.is_finishing = False
        self._sock: socket.socket | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    def listen(self, host: str, port: int, backlog: int = 1024) -> int:
        """Start to listen; connections wait until `accept` is called.

        :param port: 0 for a free port.
        :returns: the port.
        :raises OSError: the address is in use, or does not belong to this machine.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        self._sock = sock
        return int(sock.getsockname()[1])

    def accept(self, new_handler: HandlerFactory) -> None:
        """Start to accept connections.

        :param new_handler: creates the request handler of a connection.
        """
        self.new_handler = new_handler
        self.begin_accepting()
        self._sweeping = self.loop.call_later(SWEEP_S, self._sweep)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def finish(self, timeout_s: float) -> None:
        """Stop listening, complete the requests in progress, and end all connections."""
        self._stop_listening()
        self._drop_waiting()
        self.is_finishing = True
        for connection in list(self._connections):
            connection.finish()
        under_way = [task for connection in self._connections if (task := connection.under_way)]
        if under_way:
            _, late = await asyncio.wait(under_way, timeout=timeout_s)
            if late:
                log.warning("%d requests did not complete within %g s; canceling them", len(late), timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self.close()

    def close(self) -> None:
        """Stop listening and end all connections."""
        self._stop_listening()
        for handshake in list(self._handshakes):
            handshake.abort(ConnectionAbortedError("the listener closes"))
        self._drop_waiting()
        self.end_connections()

    def end_connections(self) -> None:
        """End all connections."""
        for connection in list(self._connections):
            connection.close()

    def begin_accepting(self) -> None:
        """Accept connections from now on."""
        assert self._sock, "listen comes first"
        self.loop.add_reader(self._sock.fileno(), self._acceptable)

    def stop_accepting(self) -> None:
        """Accept no more connections, and release the address."""
        if self._sock:
            self.loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _stop_listening(self) -> None:
        self.stop_accepting()
        if self._sweeping:
            self._sweeping.cancel()

    def forget(self, connection: ServerConnection) -> None:
        """Called by a connection that has ended, after its requests are completed."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._count.leave(connection.endpoints.host)

    def _acceptable(self) -> None:
        assert self._sock
        now_s = self.loop.time()
        if pause_s := max(each.wait_s(now_s) for each in self._all_rates):
            self._pause_accepting(min(pause_s, ACCEPT_PAUSE_S))
            return
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # Probably no file descriptors are left, so another attempt would fail, too.
            extra = event(LogEvent.CONNECTION_REFUSED)
            log.warning("cannot accept connections for %g s: %s", ACCEPT_PAUSE_S, error, extra=extra)
            self._pause_accepting(ACCEPT_PAUSE_S)
            return
        for each in self._all_rates:
            each.note(now_s)
        endpoints = Endpoints(str(address[0]), int(address[1]), str(sock.getsockname()[0]))
        wait_s = self._rates.take(endpoints.host, now_s)
        if wait_s is None:
            self._refuse(endpoints, f"{endpoints.host} exceeds its rate of new connections (connection_creation_rate)")
            sock.close()
        elif not self._is_within_limits(endpoints):
            self._rates.give_back(endpoints.host, now_s)
            sock.close()
        elif wait_s:
            self.throttled_count += 1
            self._waiting[sock] = endpoints, self.loop.call_later(wait_s, self._begin_waiting, sock)
        else:
            self._begin(sock, endpoints)

    def _pause_accepting(self, pause_s: float) -> None:
        assert self._sock
        self.loop.remove_reader(self._sock.fileno())
        self.loop.call_later(pause_s, self._accept_again)

    def _begin(self, sock: socket.socket, endpoints: Endpoints) -> None:
        if self._tls is None:
            self._serve(partial(Stream, self.loop, sock), endpoints)
        else:
            context, threads = self._tls
            self._begin_handshake(sock, context.current, threads, endpoints)

    def _begin_waiting(self, sock: socket.socket) -> None:
        """Serve a connection that has waited because its address exceeded its rate."""
        endpoints, _ = self._waiting.pop(sock)
        self._begin(sock, endpoints)

    def _drop_waiting(self, *, are_gone: bool = False) -> None:
        """Close the connections that wait because of their rates.

        :param are_gone: True to close only those whose clients have disconnected.
        """
        for sock, (endpoints, timer) in list(self._waiting.items()):
            if are_gone and not _is_gone(sock):
                continue
            del self._waiting[sock]
            timer.cancel()
            sock.close()
            self._count.leave(endpoints.host)
            self._rates.give_back(endpoints.host, self.loop.time())

    def admit(self, open_stream: OpenStream, endpoints: Endpoints) -> bool:
        """Serve an accepted connection; return False if the limits do not allow another connection."""
        if not self._is_within_limits(endpoints):
            return False
        self._serve(open_stream, endpoints)
        return True

    def _is_within_limits(self, endpoints: Endpoints) -> bool:
        """Count a connection; return False, and count nothing, if the limits do not allow another connection."""
        refusal = self._count.admit(endpoints.host)
        if refusal:
            self._refuse(endpoints, refusal)
            return False
        self.accepted_count += 1
        return True

    def _refuse(self, endpoints: Endpoints, refusal: str) -> None:
        self.refused_count += 1
        extra = event(LogEvent.CONNECTION_REFUSED)
        self._refusal_log.warning("refusing the connection from %s: %s", endpoints.address, refusal, extra=extra)

    def _serve(self, open_stream: OpenStream, endpoints: Endpoints) -> None:
        self._connections.add(ServerConnection(self, open_stream, endpoints))

    def _begin_handshake(
        self, sock: socket.socket, context: ssl.SSLContext, threads: Executor, endpoints: Endpoints
    ) -> None:
        def on_done(secured: ssl.SSLSocket | None, error: Exception | None) -> None:
            del self._handshakes[handshake]
            if secured is not None and not self.is_finishing:
                try:
                    subject = peer_subject(secured)
                    self._serve(partial(TlsStream, self.loop, secured), endpoints._replace(subject=subject))
                except AuthenticationError as refusal:  # no principal for this certificate
                    error = refusal
                else:
                    return
            self._count.leave(endpoints.host)
            if secured is not None:
                secured.close()
            if error is not None:
                self.failed_handshake_count += 1
                message = "the TLS handshake with %s failed: %s; closed the connection"
                extra = event(LogEvent.HANDSHAKE_FAILED)
                self._handshake_log.warning(message, endpoints.address, reason_of_failure(error), extra=extra)

        try:
            handshake = TlsHandshake(self.loop, sock, context, threads, on_done)
        except OSError:  # the client has gone already
            sock.close()
            self._count.leave(endpoints.host)
            return
        self._handshakes[handshake] = self.loop.time() + self.limits.authentication_s_max

    def _accept_again(self) -> None:
        if self._sock:
            self.loop.add_reader(self._sock.fileno(), self._acceptable)

    def _sweep(self) -> None:
        now_s = self.loop.time()
        for connection in list(self._connections):
            connection.check_deadlines(now_s)
        for handshake, deadline_s in list(self._handshakes.items()):
            if now_s > deadline_s:
                handshake.abort(TimeoutError(f"not complete within {self.limits.authentication_s_max:g} s"))
        self._drop_waiting(are_gone=True)
        self._check_unread_answers()
        self._sweeping = self.loop.call_later(SWEEP_S, self._sweep)

    def _check_unread_answers(self) -> None:
        """If unread responses fill the memory for requests, end connections whose clients do not read. Connections
        whose clients have read nothing since the last check end first, and among them those with the most unread bytes.
        """
        unread = [(each.look_at_unread(), each) for each in self._connections]
        total = sum(look.unread_bytes for look, _ in unread)
        bytes_max = self.limits.queued_bytes_max
        if total <= bytes_max:
            return
        for look, connection in sorted(unread, key=lambda each: each[0], reverse=True):
            if total <= bytes_max:
                return
            total -= look.unread_bytes
            connection.close(
                f"{look.unread_bytes} bytes of its responses are unread, and the unread responses of all connections"
                f" exceed {bytes_max} bytes (queued.max.request.bytes)"
            )


def _is_gone(sock: socket.socket) -> bool:
    """Return whether the client of a connection has disconnected before it sent anything."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
