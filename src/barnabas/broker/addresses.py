"""The brokers of the cluster, as a client is told of them."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.identity import Identity
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.pipeline.connection_state import ConnectionState


class BrokerAddress(NamedTuple):
    """A broker, and where a client reaches it; `rack` is None where nobody said."""

    id: int
    host: str
    port: int
    rack: str | None


def addresses(image: MetadataImage, identity: Identity, connection: ConnectionState) -> list[BrokerAddress]:
    """Return all brokers that live, by id; this one too, even while it is not registered.

    :param connection: of the client that asks. A broker that listens on all addresses names the one at which the client
        reached it.
    """
    found = {
        each: BrokerAddress(each, told.host, told.port, told.rack or None)
        for each, told in ((number, broker.registration) for number, broker in image.brokers.items())
    }
    host, port = identity.address_for(connection)
    found[identity.node_id] = BrokerAddress(identity.node_id, host, port, identity.rack or None)
    return [found[each] for each in sorted(found)]


def address_of(
    broker_id: int, image: MetadataImage, identity: Identity, connection: ConnectionState
) -> BrokerAddress | None:
    """Return where a client reaches a broker; None if it does not live."""
    return next((each for each in addresses(image, identity, connection) if each.id == broker_id), None)
