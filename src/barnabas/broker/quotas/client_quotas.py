"""The quotas of all clients, from the metadata store (`barnabas.coordination.client_quotas`).

A change is durable, and in force on this broker, when `alter` returns. Other brokers read it when they receive the
change notification. The limits in memory stay in force while the metadata store is unreachable.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.quotas.entities import (
    Entity,
    EntityFilter,
    EntityPart,
    Quotas,
    check_quotas,
    describe_entity,
    entity_of,
    quota_keys,
    quota_text,
    quotas_in,
)
from barnabas.broker.quotas.limits import QuotaLimits
from barnabas.coordination import client_quotas, configs
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.shielded import completed

log = logging.getLogger(__name__)

Parts = tuple[tuple[str, str | None], ...]
"""The types and names in a request, which may be invalid."""


class Alteration(NamedTuple):
    """A change of the quotas of one entity: the new values by key, None to remove a quota."""

    parts: Parts
    values: Sequence[tuple[str, float | None]]


class ClientQuotas:
    """The quotas of all clients. Used from the event loop's thread. The constructor reads them.

    :param in_metadata_thread: runs functions on the thread of the metadata store.
    :param put_into_force: called with the limits after each change.
    """

    def __init__(
        self,
        tree: MetadataStore,
        in_metadata_thread: InMetadataThread,
        put_into_force: Callable[[QuotaLimits], object],
    ) -> None:
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._put_into_force = put_into_force
        self._known: Mapping[Entity, Quotas] = {}
        self._take(self._read())

    async def reread(self) -> None:
        """Read all quotas.

        :raises CoordinationError: the metadata store is unreachable.
        """
        self._take(await self._in_metadata_thread(self._read))

    def describe(self, wanted: EntityFilter) -> list[tuple[Entity, Quotas]]:
        """Return the entities that a filter selects, with their quotas."""
        return [(of, quotas) for of, quotas in self._known.items() if of in wanted]

    async def alter(
        self, alterations: Iterable[Alteration], *, validate_only: bool = False
    ) -> dict[Parts, BarnabasError | None]:
        """Change quotas. Return a result for each entity: None if the change is in force, else the error.

        An entity with an invalid alteration keeps all quotas.
        """
        # Not cancelled if the client disconnects: otherwise metadata store and memory could disagree.
        return await completed(self._alter(list(alterations), validate_only))

    async def _alter(self, alterations: Sequence[Alteration], validate_only: bool) -> dict[Parts, BarnabasError | None]:
        results: dict[Parts, BarnabasError | None] = {}
        named = [frozenset(each.parts) for each in alterations]
        for each in alterations:
            results[each.parts] = None
            try:
                if named.count(frozenset(each.parts)) > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the request names the entity twice")
                of = entity_of(each.parts)
                values = _checked(of, each.values)
                if not validate_only:
                    await self._change(of, values)
            except BarnabasError as error:
                results[each.parts] = error
        return results

    async def _change(self, of: Entity, values: Mapping[str, float | None]) -> None:
        change = functools.partial(_changed, of, values)
        settings = await self._in_metadata_thread(client_quotas.change_quota_config, self._tree, of, change)
        quotas, _ = quotas_in(of, settings)
        known = {other: each for other, each in self._known.items() if other != of}
        self._take({**known, of: quotas} if quotas else known)
        log.info("changed the quotas of %s", describe_entity(of))

    def _take(self, known: Mapping[Entity, Quotas]) -> None:
        if known != self._known:
            self._known = known
            self._put_into_force(QuotaLimits(known))

    def _read(self) -> dict[Entity, Quotas]:
        found: dict[Entity, Quotas] = {}
        for node, settings in client_quotas.read_quota_configs(self._tree).items():
            try:
                of = entity_of(node)
                quotas, problems = quotas_in(of, settings)
            except ApiError as error:
                of, quotas, problems = tuple(EntityPart(*part) for part in node), {}, [error.reason]
            configs.report_settings(self._tree, client_quotas.quota_path(node), problems)
            if quotas:
                found[of] = quotas
        return found


def _checked(of: Entity, values: Sequence[tuple[str, float | None]]) -> dict[str, float | None]:
    """Return the new quotas of an entity by key.

    :raises ApiError: INVALID_REQUEST for a key that is named twice, or an invalid key or value.
    """
    found = dict(values)
    if len(found) < len(values):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the request names a quota of the entity twice")
    check_quotas(of, {key: value for key, value in values if value is not None})
    return found


def _changed(of: Entity, values: Mapping[str, float | None], before: Mapping[str, str]) -> dict[str, str]:
    after = {key: text for key, text in before.items() if values.get(key, "") is not None or key not in quota_keys(of)}
    return after | {key: quota_text(of, key, value) for key, value in values.items() if value is not None}
