"""A link between clients and a broker that breaks again and again, always after a request was carried out."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

CHUNK_BYTES_MAX = 65_536


class LossyLink:
    """Listens on a port of its own and passes bytes on in both directions.

    Each connection ends with the answer number `answers_per_connection`: the broker has sent it, the client never
    gets it, and cannot know whether its request was carried out.
    """

    def __init__(self, answers_per_connection: int) -> None:
        self.answers_lost = 0
        self._answers_per_connection = answers_per_connection
        self._broker_port = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def connect_to(self, broker_port: int) -> None:
        """Begin to pass connections on."""
        self._broker_port = broker_port
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                threading.Thread(target=self._pass_requests, args=(client, broker), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(client, broker), daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), broker:
            self._pass_chunks(client, broker)
            # Closing alone would end nothing while the other thread waits for answers of the same connection.
            broker.shutdown(socket.SHUT_RDWR)
            client.shutdown(socket.SHUT_RDWR)

    def _pass_chunks(self, client: socket.socket, broker: socket.socket) -> None:
        while data := client.recv(CHUNK_BYTES_MAX):
            broker.sendall(data)

    def _pass_answers(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            for _ in range(self._answers_per_connection - 1):
                data = broker.recv(CHUNK_BYTES_MAX)
                if not data:
                    return
                client.sendall(data)
            if broker.recv(CHUNK_BYTES_MAX):
                self.answers_lost += 1
            client.shutdown(socket.SHUT_RDWR)
