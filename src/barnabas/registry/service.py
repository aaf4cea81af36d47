"""What the REST interface does: reads from the state, changes by way of the topic, schemas parsed beside the loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from barnabas.registry import compatibility, contexts, operations
from barnabas.registry.errors import RegistryError
from barnabas.registry.kinds import parsing
from barnabas.registry.kinds.schema import Schema, SchemaSyntaxError
from barnabas.registry.operations import Change
from barnabas.registry.requests import SchemaRequest, parse_subject
from barnabas.registry.settings import IMPORT, Level
from barnabas.registry.state import Content, RegistryState, Version
from barnabas.registry.topic import SchemaTopic

PARSED_MAX = 1_000
"""Parsed schemas that are kept."""
DEFAULT_LEVEL = Level.BACKWARD

T = TypeVar("T")

parse = functools.lru_cache(PARSED_MAX)(parsing.parse)


class Service:
    """The registry's calls; those that change something are for the registry that writes."""

    def __init__(self, state: RegistryState, topic: SchemaTopic) -> None:
        self.state = state
        self._topic = topic
        self._writing = asyncio.Lock()

    # --- schemas ----------------------------------------------------------------------------------------

    async def register(self, subject: str, body: Any, *, normalize: bool) -> Any:
        """Register a schema as the next version of a subject, unless it is one of its versions.

        :raises RegistryError: 409, 422, 42201, 42205, 50001 ...
        """
        parse_subject(subject)
        request = SchemaRequest.of(body)
        return await _to_its_end(self._register(subject, request, normalize=normalize))

    async def _register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Any:
        async with self._writing:
            normalize = normalize or bool(self.state.config(subject, "normalize", False))
            request, schema = await self._understood(subject, request, normalize=normalize)
            known = operations.find(self.state, subject, request.content)
            if known is not None and request.id in (None, known.id):
                return {"id": known.id}
            operations.check_writable(self.state, subject, imported=request.id is not None)
            reasons = await self._incompatibilities(subject, request, schema)
            if reasons:
                raise RegistryError.incompatible(subject, reasons)
            return await self._carry_out(operations.register(self.state, subject, request))

    async def known_id(self, subject: str, body: Any, *, normalize: bool) -> Any | None:
        """Return what `register` would answer, if the subject has the schema already; any registry can tell that."""
        request = SchemaRequest.of(body)
        normalize = normalize or bool(self.state.config(subject, "normalize", False))
        request, _ = await self._understood(subject, request, normalize=normalize)
        known = operations.find(self.state, subject, request.content)
        return {"id": known.id} if known is not None and request.id in (None, known.id) else None

    async def look_up(self, subject: str, body: Any, *, normalize: bool, deleted: bool) -> Version:
        """Return the version of a subject that is a schema.

        :raises RegistryError: 40401, 40403, 42201.
        """
        request = SchemaRequest.of(body)
        if not self.state.versions(subject, deleted=deleted):
            raise RegistryError.subject_not_found(subject)
        try:
            request, _ = await self._understood(subject, request, normalize=normalize)
        except RegistryError as error:
            raise RegistryError(error.code, f"Error while looking up schema under subject {subject}") from error
        found = operations.find(self.state, subject, request.content, deleted=deleted)
        if found is None:
            raise RegistryError.schema_not_found()
        return found

    async def judge(self, subject: str, number: int | None, body: Any, *, all_versions: bool) -> list[str]:
        """Return why a schema is not compatible with a version of a subject, or with those that its level names.

        :raises RegistryError: 40401, 40402, 42201.
        """
        request = SchemaRequest.of(body)
        request, schema = await self._understood(subject, request, normalize=False)
        level = self.level(subject)
        if all_versions:
            return await self._incompatibilities(subject, request, schema)
        earlier = [self._version_to_judge(subject, number)]
        return await self._compare(level, schema, request, earlier)

    def _version_to_judge(self, subject: str, number: int | None) -> Version:
        try:
            return self.state.version(subject, number)
        except RegistryError:
            if number is None:
                raise
            raise RegistryError.version_not_found(number) from None

    def level(self, subject: str) -> Level:
        """Return the compatibility level that is in force for a subject."""
        return Level.of(self.state.config(subject, "compatibilityLevel", DEFAULT_LEVEL))

    async def _incompatibilities(self, subject: str, request: SchemaRequest, schema: Schema) -> list[str]:
        if self.state.mode(subject) == IMPORT:
            return []
        return await self._compare(self.level(subject), schema, request, self.state.versions(subject))

    async def _compare(self, level: Level, schema: Schema, request: SchemaRequest, earlier: list[Version]) -> list[str]:
        dependencies = {each: operations.dependencies(self.state, each.subject, each.content) for each in earlier}
        return await _beside_the_loop(
            lambda: compatibility.incompatibilities(
                level,
                schema,
                request.content.schema_type,
                earlier,
                lambda version: parse(version.content, dependencies[version]),
            )
        )

    async def _understood(
        self, subject: str, request: SchemaRequest, *, normalize: bool
    ) -> tuple[SchemaRequest, Schema]:
        """Return a request with its schema in the one form that all like it have, and the schema."""
        content = request.content
        dependencies = operations.dependencies(self.state, subject, content)
        try:
            schema = await _beside_the_loop(lambda: parse(content, dependencies))
            text = await _beside_the_loop(lambda: schema.normalized if normalize else schema.text)
        except SchemaSyntaxError as error:
            raise content.invalid(str(error)) from error
        references = sorted(content.references, key=lambda each: each.name) if normalize else content.references
        written = Content(content.schema_type, text, tuple(references), content.extras)
        return SchemaRequest(written, request.id, request.version), schema

    async def formatted(self, context: str, content: Content, form: str) -> str:
        """Return a schema's text, in another form where one is asked for: `serialized` for Protobuf, `resolved`."""
        if not form:
            return content.text
        dependencies = operations.dependencies(self.state, contexts.qualified(context, ""), content)
        try:
            schema = await _beside_the_loop(lambda: parse(content, dependencies))
        except SchemaSyntaxError:  # of an older registry, which was less strict
            return content.text
        written = getattr(schema, form, None)
        return written if isinstance(written, str) else content.text

    # --- changes ----------------------------------------------------------------------------------------

    async def change(self, plan: Callable[[RegistryState], Change]) -> Any:
        """Carry out what a function of the state wants to be changed."""
        return await _to_its_end(self._change(plan))

    async def _change(self, plan: Callable[[RegistryState], Change]) -> Any:
        async with self._writing:
            return await self._carry_out(plan(self.state))

    async def _carry_out(self, change: Change) -> Any:
        await self._topic.append(change.records)
        return change.answer


async def _to_its_end(change: Coroutine[Any, Any, T]) -> T:
    """Await a change that goes on if who asked for it is gone: the next one is planned when it is in the topic."""
    return await asyncio.shield(asyncio.create_task(change))


async def _beside_the_loop(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)
