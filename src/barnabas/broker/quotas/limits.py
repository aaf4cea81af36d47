"""The limits that apply to a client, by Kafka's precedence. The module does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    USER,
    Entity,
    Quotas,
    canonical_address,
    entity,
)


class Limit(NamedTuple):
    """A limit, and the clients that share it: an empty user or client id stands for all of them."""

    value: float
    user: str
    client_id: str


class QuotaLimits:
    """The quotas in force.

    :param quotas: the quotas by entity.

    >>> quotas = {entity("alice"): {"producer_byte_rate": 5}, entity(None): {"request_percentage": 9}}
    >>> limits = QuotaLimits(quotas)
    >>> limits.of_client("producer_byte_rate", "alice", "app")
    Limit(value=5, user='alice', client_id='')
    >>> limits.of_client("request_percentage", "alice", "app")
    Limit(value=9, user='alice', client_id='')
    """

    def __init__(self, quotas: Mapping[Entity, Quotas]) -> None:
        self.quotas = quotas
        self.keys = frozenset(key for each in quotas.values() for key in each)
        """The keys for which any client has a limit."""
        self._rates: dict[str | None, float] = {
            of[0].name: each[CONNECTION_CREATION_RATE]
            for of, each in quotas.items()
            if of[0].kind == IP and CONNECTION_CREATION_RATE in each
        }

    def of_client(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None if it has none."""
        if key not in self.keys:
            return None
        for of in (
            entity(user, client_id) if client_id else (),
            entity(user, None),
            entity(user),
            entity(None, client_id) if client_id else (),
            entity(None, None),
            entity(None),
            entity(client_id=client_id) if client_id else (),
            entity(client_id=None),
        ):
            value = self.quotas.get(of, {}).get(key)
            if value is not None:
                kinds = {part.kind for part in of}
                return Limit(value, user if USER in kinds else "", client_id if CLIENT_ID in kinds else "")
        return None

    def connection_rate(self, host: str) -> float | None:
        """Return the maximum number of new connections per second from an address; None without a quota."""
        if not self._rates:
            return None
        return self._rates.get(canonical_address(host) or host, self._rates.get(None))
