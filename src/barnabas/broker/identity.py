"""The identity and the addresses of brokers, as reported to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.pipeline.call import ConnectionState

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The id, cluster id, address and rack that a broker reports to clients."""

    node_id: int
    cluster_id: str
    host: str
    port: int
    rack: str = ""

    def address_for(self, connection: ConnectionState) -> tuple[str, int]:
        """Return the address that a client should use for this broker.

        A broker that listens on all addresses returns the address of the client's current connection.
        """
        return connection.local_host if self.host in WILDCARD_HOSTS else self.host, self.port


class BrokerAddress(NamedTuple):
    """The id and address of a broker for a client. `rack` is None if the broker has no rack."""

    id: int
    host: str
    port: int
    rack: str | None


def addresses(image: MetadataImage, identity: Identity, connection: ConnectionState) -> list[BrokerAddress]:
    """Return the addresses of all live brokers by id. This broker is included even if it is not registered.

    :param connection: the connection of the client. A broker that listens on all addresses returns the address of this
        connection.
    """
    found = {
        each: BrokerAddress(each, own.host, own.port, own.rack or None)
        for each, own in ((number, broker.registration) for number, broker in image.brokers.items())
    }
    host, port = identity.address_for(connection)
    found[identity.node_id] = BrokerAddress(identity.node_id, host, port, identity.rack or None)
    return [found[each] for each in sorted(found)]


def address_of(
    broker_id: int, image: MetadataImage, identity: Identity, connection: ConnectionState
) -> BrokerAddress | None:
    """Return a broker's address for a client, or None if the broker is not live."""
    return next((each for each in addresses(image, identity, connection) if each.id == broker_id), None)
