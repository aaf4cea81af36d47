"""The identity and the addresses of brokers, as reported to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.pipeline.call import ConnectionState
from barnabas.coordination.values import BROKER_LISTENER, CLIENT_LISTENER, BrokerEndpoint

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The id, cluster id, addresses and rack that a broker reports to clients.

    :param endpoints: the advertised address of each listener; the first one is the main listener for clients.
    """

    node_id: int
    cluster_id: str
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str = ""

    @property
    def main(self) -> BrokerEndpoint:
        """The advertised address of the main listener for clients."""
        return self.endpoints[0]

    @property
    def has_usual_listeners(self) -> bool:
        """True if the broker has no other listeners than PLAINTEXT and REPLICATION."""
        usual = {(CLIENT_LISTENER, "PLAINTEXT"), (BROKER_LISTENER, "PLAINTEXT")}
        return all((each.listener, each.protocol) in usual for each in self.endpoints)

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Return the advertised address of a listener; None if the broker does not have it."""
        return next((each for each in self.endpoints if each.listener == listener), None)

    def address_for(self, connection: ConnectionState) -> tuple[str, int]:
        """Return the address that a client should use for this broker: that of the listener of its connection.

        A listener on all addresses returns the address of the client's current connection.
        """
        own = self.endpoint(connection.listener.name) or self.main
        return connection.local_host if own.host in WILDCARD_HOSTS else own.host, own.port


class BrokerAddress(NamedTuple):
    """The id and address of a broker for a client. `rack` is None if the broker has no rack."""

    id: int
    host: str
    port: int
    rack: str | None


def addresses(image: MetadataImage, identity: Identity, connection: ConnectionState) -> list[BrokerAddress]:
    """Return the addresses of all live brokers by id. This broker is included even if it is not registered.

    A broker without the listener of the connection is left out.

    :param connection: the connection of the client. A broker that listens on all addresses returns the address of this
        connection.
    """
    found = {}
    for number, broker in image.brokers.items():
        own = broker.registration
        if (endpoint := own.endpoint(connection.listener.name)) is not None:
            found[number] = BrokerAddress(number, endpoint.host, endpoint.port, own.rack or None)
    host, port = identity.address_for(connection)
    found[identity.node_id] = BrokerAddress(identity.node_id, host, port, identity.rack or None)
    return [found[each] for each in sorted(found)]


def address_of(
    broker_id: int, image: MetadataImage, identity: Identity, connection: ConnectionState
) -> BrokerAddress | None:
    """Return a broker's address for a client, or None if the broker is not live."""
    return next((each for each in addresses(image, identity, connection) if each.id == broker_id), None)
