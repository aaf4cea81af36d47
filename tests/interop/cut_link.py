"""A link between a client and a server that is cut at the moment that a test chooses."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

CHUNK_BYTES_MAX = 65_536


class CutLink:
    """Listens on a port of its own and passes bytes on in both directions."""

    def __init__(self, server_port: int) -> None:
        self.cuts = 0
        """How many connections were cut at a request or an answer."""
        self._server_port = server_port
        self._lock = threading.Lock()
        self._is_cut = False
        self._loses_request = False
        self._loses_answer = False
        self._stays_cut = False
        self._connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def lose_next_request(self) -> None:
        """Cut the connection when the client sends something: the server never gets it."""
        self._loses_request = True

    def lose_next_answer(self, *, stays_cut: bool = False) -> None:
        """Cut the connection when the server answers: it has done it, and the client does not know.

        :param stays_cut: let no new connection through until `mend`.
        """
        self._stays_cut = stays_cut
        self._loses_answer = True

    def cut(self) -> None:
        """Cut all connections, and let no new one through until `mend`."""
        with self._lock:
            self._is_cut = True
            for each in self._connections:
                _end(each)
            self._connections.clear()

    def mend(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                client.close()
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                return
            self._connections += [client, server]
        threading.Thread(target=self._pass, args=(client, server, "_loses_request"), daemon=True).start()
        threading.Thread(target=self._pass, args=(server, client, "_loses_answer"), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, loses: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES_MAX):
                if getattr(self, loses):
                    setattr(self, loses, False)
                    self._is_cut = self._stays_cut
                    self.cuts += 1
                    break
                target.sendall(data)
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
