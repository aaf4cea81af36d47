"""What the broker knows of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.pipeline.templates import ConnectionTemplates

if TYPE_CHECKING:
    from barnabas.broker.delayed_fetch import DelayedFetch
    from barnabas.broker.refused_batches import RefusedBatches
    from barnabas.net.server_connection import ConnectionContext


class ListenerName(NamedTuple):
    """A listener of the broker, as Kafka's settings name it."""

    name: str
    security_protocol: str = "PLAINTEXT"


CLIENTS = ListenerName("CLIENTS")
BROKERS = ListenerName("BROKERS")


class ConnectionState:
    """The state of one connection. One part of the broker writes each field; all others only read it.

    :param listener: the listener that accepted the connection.
    :param link: the connection, as the network layer has it.
    """

    __slots__ = (
        "delayed_fetch",
        "has_refused_follower",
        "host",
        "link",
        "listener",
        "local_host",
        "refused_batches",
        "templates",
    )

    def __init__(self, listener: ListenerName, link: ConnectionContext) -> None:
        self.listener = listener
        self.link = link
        self.host = link.endpoints.host
        """The client's address, without its port."""
        self.local_host = link.endpoints.local_host
        """The address of this machine at which the client arrived."""
        self.templates = ConnectionTemplates()
        """The requests that this connection repeats. Written by the decoding, and by handlers that teach it."""
        self.refused_batches: RefusedBatches | None = None
        """The batches that were refused for now. Written by the handler of Produce."""
        self.has_refused_follower = False
        """Whether a refusal of a follower was logged. Written by the handler of the followers' Fetch."""
        self.delayed_fetch: DelayedFetch | None = None
        """The follower's fetch that waits; the next request completes it. Written by the handler of the followers'
        Fetch."""

    @property
    def address(self) -> str:
        """The client's host and port, for log lines."""
        return self.link.endpoints.address

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self.link.is_gone
