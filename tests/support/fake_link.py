"""Connections of tests that call the broker's request pipeline without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from barnabas.broker.pipeline.call import CLIENTS, Call, ConnectionState, ListenerName, ServedApi
from barnabas.net.server_connection import Endpoints, Frame
from barnabas.protocol.codec import Chunk


class FakeLink:
    """A connection's end without a connection: it counts nothing, and keeps what is pushed."""

    def __init__(self, host: str = "127.0.0.1", port: int = 1, local_host: str = "127.0.0.1") -> None:
        self.endpoints = Endpoints(host, port, local_host)
        self.is_gone = False
        self.pushed: list[Chunk] = []
        self.given_back: list[bytes] = []
        self.on_hang_up: Callable[[str], None] = lambda _reason: None
        self.kept_bytes: list[int] = []
        self.can_keep = True
        self.is_admitted = False
        self.closing_reason: str | None = None
        self.muted_s: list[float] = []

    def release_frame(self, size: int) -> bool:
        self.kept_bytes.append(size)
        return self.can_keep

    def requeue(self, frames: Sequence[Frame]) -> None:
        self.given_back = [bytes(each) for each in frames]

    def push(self, chunks: Iterable[Chunk]) -> None:
        if not self.is_gone:
            self.pushed += chunks

    def admit(self) -> None:
        self.is_admitted = True

    def close_after_response(self, reason: str) -> None:
        self.closing_reason = reason

    def mute(self, seconds: float) -> None:
        self.muted_s.append(seconds)

    def hang_up(self, reason: str) -> None:
        if not self.is_gone:
            self.on_hang_up(reason)


def connection_state(
    host: str = "127.0.0.1", local_host: str = "127.0.0.1", listener: ListenerName = CLIENTS
) -> ConnectionState:
    return ConnectionState(listener, FakeLink(host, 1, local_host))


def call_of(
    served: ServedApi, version: int, client_id: str | None = "me", connection: ConnectionState | None = None
) -> Call:
    """Return the call of a request with correlation id 1."""
    return Call(served, version, 1, client_id, connection or connection_state())


def begun(reply: Any) -> Any:
    """Do the steps of a reply; return its response, or what it waits for."""
    if reply.steps is not None:
        try:
            while True:
                next(reply.steps)
        except StopIteration as end:
            return begun(end.value) if hasattr(end.value, "later") else end.value
    return reply.response if reply.later is None else reply.later
