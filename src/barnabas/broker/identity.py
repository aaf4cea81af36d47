"""The identity and the addresses of brokers as clients see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.pipeline.call import ConnectionState

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
