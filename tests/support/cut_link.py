"""A link between a client and a server that is cut at a request or an answer that a test chooses, or says nothing."""

from __future__ import annotations

import contextlib
import socket

from tests.support.links import CHUNK_BYTES_MAX, Link


class CutLink(Link):
    """:param server_port: where the server listens."""

    def __init__(self, server_port: int) -> None:
        self.cuts = 0
        """How many connections were cut at a request or an answer."""
        self._loses_request = False
        self._loses_answer = False
        self._stays_cut = False
        self.silenced = 0
        """On how many connections nothing was answered."""
        self._silences_next = False
        super().__init__(server_port)

    def lose_next_request(self) -> None:
        """Cut the connection when the client sends something: the server never gets it."""
        self._loses_request = True

    def lose_next_answer(self, *, stays_cut: bool = False) -> None:
        """Cut the connection when the server answers: it has done it, and the client does not know.

        :param stays_cut: let no new connection through until `mend`.
        """
        self._stays_cut = stays_cut
        self._loses_answer = True

    def silence_next_connection(self) -> None:
        """Accept the next connection, and pass nothing on: so a server may treat one that came while it started."""
        self._silences_next = True

    def _connect(self, client: socket.socket) -> None:
        if not self._silences_next:
            super()._connect(client)
            return
        self._silences_next = False
        self.silenced += 1
        with client, contextlib.suppress(OSError):
            while client.recv(CHUNK_BYTES_MAX):
                pass

    def _lets_through(self, *, from_client: bool) -> bool:
        if not (self._loses_request if from_client else self._loses_answer):
            return True
        if from_client:
            self._loses_request = False
        else:
            self._loses_answer = False
        self._is_cut = self._stays_cut
        self.cuts += 1
        return False
