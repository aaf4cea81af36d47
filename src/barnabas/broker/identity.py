"""Who a broker is to its clients: its id, its cluster, and the address at which they reach it."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.pipeline.connection_state import ConnectionState

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Identity:
    """What clients are told of a broker."""

    node_id: int
    cluster_id: str
    host: str
    port: int
    rack: str = ""

    def address_for(self, connection: ConnectionState) -> tuple[str, int]:
        """Return the address that a client is to use for this broker.

        A broker that listens on all addresses tells each client the one at which that client reached it.
        """
        return connection.local_host if self.host in WILDCARD_HOSTS else self.host, self.port
