"""The schemas of a registry, asked for as the signed-in user, on threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.clock import Clock
from barnabas.console.record_decoding import WAIT_S, RecordDecoding
from barnabas.serialization.registry_client import Schema, registry_of
from barnabas.serialization.registry_settings import RegistrySettings

T = TypeVar("T")

CALLS_AT_ONCE = 4
TIMEOUT_S = 10.0


class Schemas:
    """Asks a registry.

    :param options: the settings of the registry's client, such as `username`.
    :ivar decoding: decodes records with the registry's schemas.
    """

    def __init__(self, url: str, options: Mapping[str, str], clock: Clock) -> None:
        settings = RegistrySettings.of(url, options)
        self._registry = registry_of(settings, TIMEOUT_S)
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)
        self.decoding = RecordDecoding(lambda: registry_of(settings, WAIT_S), clock)

    async def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return await self._call(self._registry.subjects)

    async def versions(self, subject: str) -> list[int]:
        """Return the numbers of the versions of a subject."""
        return await self._call(lambda: self._registry.versions(subject))

    async def version(self, subject: str, number: int) -> Schema:
        """Return a version of a subject."""
        return (await self._call(lambda: self._registry.version(subject, number)))[1]

    async def incompatibilities(self, subject: str, schema: Schema) -> list[str]:
        """Return the reasons why a schema cannot become a version of a subject."""
        return await self._call(lambda: self._registry.incompatibilities(subject, schema))

    async def _call(self, call: Callable[[], T]) -> T:
        async with self._turns:
            return await asyncio.to_thread(call)
