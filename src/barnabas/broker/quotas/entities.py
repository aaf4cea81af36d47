"""The entities that quotas apply to, the valid quotas of each, and the filter of DescribeClientQuotas (KIP-546).

An entity is a user, a client id, both, or an address. A part without a name is the default: it stands for all users,
client ids or addresses without a quota of their own. The module does no I/O.
"""

from __future__ import annotations

import enum
import ipaddress
import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from barnabas.errors import ApiError, ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

PARTS_IN_RESPONSES = (IP, CLIENT_ID, USER)
"""The order of Kafka's responses, on which clients' own tests rely."""
QUOTAS_IN_RESPONSES = (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    PRODUCER_BYTE_RATE,
)
"""The order of Kafka's responses, too."""

NAME_CHARACTERS_MAX = 1_000
CLIENT_ID_CHARACTERS_MAX = 255
"""The maximum length of a client id with quotas. A longer client id of a client counts as its beginning."""


class EntityPart(NamedTuple):
    """One part of an entity: its type, and its name or None for the default."""

    kind: str
    name: str | None


Entity: TypeAlias = "tuple[EntityPart, ...]"
"""A quota entity. The user comes before the client id."""

Quotas: TypeAlias = "Mapping[str, float]"
"""The values of quotas by key, for example `producer_byte_rate`."""


class _QuotaKey(NamedTuple):
    is_whole: bool
    """True if the value is a whole number."""
    greatest: float
    may_be_zero: bool = False

    def problem(self, name: str, value: float) -> str | None:
        if not math.isfinite(value):
            return f"{name} is {value}; it must be a number"
        if self.is_whole and abs(round(value) - value) > _EPSILON:
            return f"{name} is {value}; it must be a whole number"
        if not 0 <= value <= self.greatest or (value == 0 and not self.may_be_zero):
            least = "0 or more" if self.may_be_zero else "above 0"
            return f"{name} is {value:g}; it must be {least}, and at most {self.greatest:g}"
        return None


_EPSILON = 1e-6
_INT_MAX, _LONG_MAX = float(2**31 - 1), float(2**63 - 1)

_OF_CLIENTS = {
    PRODUCER_BYTE_RATE: _QuotaKey(is_whole=True, greatest=_LONG_MAX),
    CONSUMER_BYTE_RATE: _QuotaKey(is_whole=True, greatest=_LONG_MAX),
    REQUEST_PERCENTAGE: _QuotaKey(is_whole=False, greatest=_INT_MAX),
    CONTROLLER_MUTATION_RATE: _QuotaKey(is_whole=False, greatest=_INT_MAX),
}
QUOTAS_OF_CLIENTS = tuple(_OF_CLIENTS)
"""The keys of the quotas of users and client ids."""
_OF_ADDRESSES = {CONNECTION_CREATION_RATE: _QuotaKey(is_whole=True, greatest=_INT_MAX, may_be_zero=True)}


def quota_keys(entity: Entity) -> Collection[str]:
    """Return the keys of the quotas that an entity may have."""
    return _keys(entity).keys()


def _keys(entity: Entity) -> Mapping[str, _QuotaKey]:
    return _OF_ADDRESSES if entity[0].kind == IP else _OF_CLIENTS


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity with these types and names.

    :raises ApiError: INVALID_REQUEST for an invalid type, name or combination.
    """
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in {USER, CLIENT_ID, IP}:
            raise _invalid(f"unknown entity type {kind[:NAME_CHARACTERS_MAX]!r}; it must be user, client-id or ip")
        if kind in named:
            raise _invalid(f"the entity has two parts of the type {kind}")
        characters_max = CLIENT_ID_CHARACTERS_MAX if kind == CLIENT_ID else NAME_CHARACTERS_MAX
        if name is not None and not 0 < len(name) <= characters_max:
            raise _invalid(f"the name of a {kind} must have 1 to {characters_max} characters")
        named[kind] = name
    if not named:
        raise _invalid("the entity is empty; name a user, a client-id or an ip")
    if IP in named and len(named) > 1:
        raise _invalid("an ip cannot be combined with a user or a client-id")
    address = named.get(IP)
    if address is not None:
        named[IP] = canonical_address(address)
        if named[IP] is None:
            raise _invalid(f"{address!r} is not an IP address")
    return tuple(EntityPart(kind, named[kind]) for kind in (USER, CLIENT_ID, IP) if kind in named)


def in_response_order(parts: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Return the parts of an entity in the order of responses; parts of unknown types come last.

    >>> in_response_order([("user", "alice"), ("client-id", None)])
    [('client-id', None), ('user', 'alice')]
    """
    known = PARTS_IN_RESPONSES
    return sorted(parts, key=lambda part: known.index(part[0]) if part[0] in known else len(known))


def canonical_address(text: str) -> str | None:
    """Return an IP address in its usual form; None if the text is no address.

    >>> canonical_address("::FFFF:10.0.0.1"), canonical_address("0::1"), canonical_address("example.com")
    ('10.0.0.1', '::1', None)
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str(address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else str(address)


def entity(user: str | None = "", client_id: str | None = "", ip: str | None = "") -> Entity:
    """Return an entity; None as a name is the default, and an empty string no part.

    >>> entity(user="alice", client_id=None)
    (EntityPart(kind='user', name='alice'), EntityPart(kind='client-id', name=None))
    """
    parts = ((USER, user), (CLIENT_ID, client_id), (IP, ip))
    return tuple(EntityPart(kind, name) for kind, name in parts if name != "")


def check_quotas(of: Entity, quotas: Quotas) -> None:
    """Check the keys and values of an entity's quotas.

    :raises ApiError: INVALID_REQUEST.
    """
    for key, value in quotas.items():
        known = _keys(of).get(key)
        if known is None:
            kind = of[0].kind
            raise _invalid(f"unknown quota {key[:NAME_CHARACTERS_MAX]!r} of a {kind}; use {', '.join(_keys(of))}")
        if (problem := known.problem(key, value)) is not None:
            raise _invalid(problem)


def quotas_in(of: Entity, settings: Mapping[str, str]) -> tuple[dict[str, float], list[str]]:
    """Return the valid quotas in a node of the metadata store, and the problems with the others.

    Settings that are no quotas, such as SCRAM credentials, are ignored.
    """
    quotas, problems = {}, []
    for key, known in _keys(of).items():
        text = settings.get(key)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            problems.append(f"{key} is {text[:100]!r}; it must be a number")
            continue
        if (problem := known.problem(key, value)) is not None:
            problems.append(problem)
        else:
            quotas[key] = value
    return quotas, problems


def quota_text(of: Entity, key: str, value: float) -> str:
    """Return a quota as text for the metadata store, as Kafka writes it."""
    return str(round(value)) if _keys(of)[key].is_whole else str(value)


class Match(enum.IntEnum):
    """The ways in which a filter compares a part of an entity."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class FilterComponent(NamedTuple):
    """A condition for one part of an entity."""

    kind: str
    match_type: int
    match: str | None = None


class EntityFilter:
    """Selects entities: those that match all components, as in DescribeClientQuotas.

    :param components: the conditions, at most one for each type.
    :param strict: True to leave out the entities with further parts.
    :raises ApiError: INVALID_REQUEST for an invalid component, UNSUPPORTED_VERSION for an unknown type.
    """

    def __init__(self, components: Iterable[FilterComponent], *, strict: bool) -> None:
        self._components: dict[str, FilterComponent] = {}
        self._strict = strict
        for each in components:
            if not each.kind:
                raise _invalid("a filter has an empty entity type")
            if each.kind in self._components:
                raise _invalid(f"a filter names the entity type {each.kind} twice")
            if each.kind not in {USER, CLIENT_ID, IP}:
                message = f"unknown entity type {each.kind[:NAME_CHARACTERS_MAX]!r}"
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
            if each.match_type not in set(Match):
                raise _invalid(f"unknown match type {each.match_type}")
            if (each.match is not None) != (each.match_type == Match.EXACT):
                raise _invalid("a filter needs a name for an exact match, and none for other matches")
            self._components[each.kind] = each
        if IP in self._components and len(self._components) > 1:
            raise _invalid("a filter for ip cannot be combined with one for user or client-id")

    def __contains__(self, candidate: Entity) -> bool:
        parts = dict(candidate)
        if self._strict and len(parts) != len(self._components):
            return False
        return all(_matches(each, parts) for each in self._components.values())


def _matches(component: FilterComponent, parts: Mapping[str, str | None]) -> bool:
    if component.kind not in parts:
        return False
    return component.match_type == Match.ANY or parts[component.kind] == component.match


def describe_entity(of: Entity) -> str:
    """Return an entity as text for errors and log lines.

    >>> describe_entity(entity(user="alice", client_id=None))
    'user alice, default client-id'
    """
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in of)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
