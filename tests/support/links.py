"""A link between two processes that a test can cut, stall and mend: a relay on a port of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

CHUNK_BYTES_MAX = 65_536
HERE = "127.0.0.1"


class Link:
    """Listens, and passes the bytes of each connection on in both directions, to a server on this machine.

    Used from any thread.

    :param server_port: where the server listens, at 127.0.0.1; it need not be there yet.
    :param host: where to listen. All of 127.0.0.0/8 is this machine, so a link can have the server's own port number.
    :param port: where to listen; 0: any free one.
    """

    def __init__(self, server_port: int, host: str = HERE, port: int = 0) -> None:
        self._server_port = server_port
        self._lock = threading.Lock()
        self._is_cut = False
        self._flows = threading.Event()
        self._flows.set()
        self._connections: set[socket.socket] = set()
        self._listening = socket.create_server((host, port))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut all connections, and listen no more."""
        self.cut()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def cut(self) -> None:
        """Cut all connections, and let no new one through until `mend`: both sides see them end."""
        with self._lock:
            self._is_cut = True
            for each in self._connections:
                _end(each)
            self._connections.clear()
        self._flows.set()

    def stall(self) -> None:
        """Pass nothing until `mend`; then what was sent meanwhile arrives, late.

        New connections are accepted, and neither side hears of the other's end: so it is while a network loses all
        packets.
        """
        self._flows.clear()

    def mend(self) -> None:
        """Let everything through again."""
        self._is_cut = False
        self._flows.set()

    def _lets_through(self, *, from_client: bool) -> bool:
        """Whether what has come is passed on; else its connection is cut. For links that lose something."""
        return True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._flows.wait()
        with self._lock:
            if self._is_cut:
                client.close()
                return
            try:
                server = socket.create_connection((HERE, self._server_port))
            except OSError:
                client.close()
                return
            self._connections |= {client, server}
        threading.Thread(target=self._pass, args=(server, client), daemon=True).start()
        self._pass(client, server, from_client=True)

    def _pass(self, source: socket.socket, target: socket.socket, *, from_client: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES_MAX):
                self._flows.wait()
                if not self._lets_through(from_client=from_client):
                    break
                target.sendall(data)
        self._flows.wait()
        with self._lock:
            self._connections -= {source, target}
            _end(source)
            _end(target)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
