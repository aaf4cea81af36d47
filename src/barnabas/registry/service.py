"""The operations of the REST interface: reads use the state in memory, changes go through the topic, and checks of
schemas run in other processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from barnabas.registry import changes, compatibility, contexts
from barnabas.registry.changes import Change
from barnabas.registry.errors import RegistryError
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.schema_topic import OvertakenError, SchemaTopic
from barnabas.registry.state import JSON, Content, RegistryState, Version
from barnabas.registry.subject_config import IMPORT, Level
from barnabas.registry.work_pool import SLOW_CPU_S, InvalidSchemaError, WorkEndedError, WorkPool
from barnabas.shielded import completed

DEFAULT_LEVEL = Level.BACKWARD
CHECK_S = 40.0
"""The time limit in seconds for all checks of one request, including waits in queues."""
INVALID_SCHEMA = 42201

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Basis:
    """The part of the state that the check of a schema depends on."""

    level: Level
    mode: str
    normalize: bool
    versions: tuple[Version, ...]
    dependencies: tuple[tuple[str, str], ...]


class Service:
    """The operations of the registry."""

    def __init__(self, state: RegistryState, topic: SchemaTopic, work: WorkPool) -> None:
        self.state = state
        self._topic = topic
        self._work = work
        self._writing = asyncio.Lock()

    # --- schemas ----------------------------------------------------------------------------------------

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> Any:
        """Register a schema as the next version of a subject, unless it already is a version of the subject.

        :raises RegistryError: the schema is incompatible (409) or invalid (42201), the mode forbids the change (42205),
        or the topic cannot be written (50001).
        """
        return await completed(self._repaired(self._register(subject, request, normalize=normalize)))

    async def _register(self, subject: str, given: SchemaRequest, *, normalize: bool) -> Any:
        """Check a schema without the lock, and append it under the lock if the basis of the check is unchanged.

        If another registration has changed the basis during the check, the check starts again.
        """
        ends = asyncio.get_running_loop().time() + CHECK_S
        while True:
            await self._topic.catch_up()
            basis = self._basis(subject, given, normalize=normalize)
            async with _deadline(ends):
                request = await self._understood(given, basis)
                known = await self._find(basis.versions, request.content)
                if known is not None and request.id in (None, known.id):
                    return {"id": known.id}
                changes.check_writable(self.state, subject, imported=request.id is not None)
                reasons = [] if basis.mode == IMPORT else await self._compare(basis, request.content)
            async with self._writing:
                if self._basis(subject, given, normalize=normalize) != basis:
                    continue
                if reasons:
                    raise RegistryError.incompatible(subject, reasons)
                change = changes.register(self.state, subject, request)
                with contextlib.suppress(OvertakenError):
                    await self._topic.append(change.records)
                    return change.answer

    def _basis(self, subject: str, request: SchemaRequest, *, normalize: bool) -> _Basis:
        """Return the part of the state that the check of a schema depends on."""
        return _Basis(
            self.level(subject),
            self.state.mode(subject),
            normalize or bool(self.state.config(subject, "normalize", False)),
            tuple(self.state.versions(subject)),
            changes.dependencies(self.state, subject, request.content),
        )

    async def look_up(self, subject: str, request: SchemaRequest, *, normalize: bool, deleted: bool) -> Version:
        """Return the version of a subject that equals a schema.

        :raises RegistryError: no such subject (40401) or version (40403), or an invalid schema (42201).
        """
        if not self.state.versions(subject, deleted=deleted):
            raise RegistryError.subject_not_found(subject)
        basis = replace(
            self._basis(subject, request, normalize=normalize),
            versions=tuple(self.state.versions(subject, deleted=deleted)),
        )
        basis = replace(basis, normalize=normalize)
        async with _deadline():
            try:
                request = await self._understood(request, basis)
            except RegistryError as error:
                if error.code != INVALID_SCHEMA:
                    raise
                raise RegistryError(error.code, f"Error while looking up schema under subject {subject}") from error
            found = await self._find(basis.versions, request.content)
        if found is None:
            raise RegistryError.schema_not_found()
        return found

    async def check_compatibility(
        self, subject: str, number: int | None, request: SchemaRequest, *, all_versions: bool
    ) -> list[str]:
        """Return the reasons why a schema is incompatible with one version, or with the versions that the compatibility
        level requires.

        :raises RegistryError: no such subject (40401) or version (40402), or an invalid schema (42201).
        """
        basis = self._basis(subject, request, normalize=False)
        if all_versions and basis.mode == IMPORT:
            basis = replace(basis, level=Level.NONE)
        if not all_versions:
            basis = replace(basis, versions=(self._version_to_judge(subject, number),))
        basis = replace(basis, normalize=False)
        async with _deadline():
            request = await self._understood(request, basis)
            return await self._compare(basis, request.content)

    def _version_to_judge(self, subject: str, number: int | None) -> Version:
        try:
            return self.state.version(subject, number)
        except RegistryError:
            if number is None:
                raise
            raise RegistryError.version_not_found(number) from None

    def level(self, subject: str) -> Level:
        """Return the effective compatibility level of a subject."""
        return Level.of(self.state.config(subject, "compatibilityLevel", DEFAULT_LEVEL))

    async def _compare(self, basis: _Basis, content: Content) -> list[str]:
        for version in compatibility.versions_to_compare(basis.level, basis.versions):
            its_dependencies = changes.dependencies(self.state, version.subject, version.content)
            arguments = (basis.level, content, basis.dependencies, version, its_dependencies)
            try:
                reasons: list[str] = await self._work.run("compare", *arguments)
            except InvalidSchemaError as error:
                raise content.invalid(str(error)) from error
            except WorkEndedError:
                return [f"the comparison with version {version.version} takes longer than {SLOW_CPU_S:g} s"]
            if reasons:
                return reasons
        return []

    async def _understood(self, request: SchemaRequest, basis: _Basis) -> SchemaRequest:
        """Return the request with its schema in canonical form.

        :raises RegistryError: the schema is invalid (42201).
        """
        content = request.content
        form = "normalized" if basis.normalize else "text"
        try:
            text = await self._work.run("write", content, basis.dependencies, form)
        except InvalidSchemaError as error:
            raise content.invalid(str(error)) from error
        except WorkEndedError:
            raise content.invalid(f"the check takes longer than {SLOW_CPU_S:g} s") from None
        by_name = sorted(content.references, key=lambda each: each.name)
        references = tuple(by_name) if basis.normalize else content.references
        written = Content(content.schema_type, text, references, content.extras)
        return SchemaRequest(written, request.id, request.version)

    async def _find(self, versions: Sequence[Version], content: Content) -> Version | None:
        exact = changes.find_exact(versions, content)
        if exact is not None or content.schema_type != JSON:
            return exact
        return await asyncio.to_thread(changes.find_in, versions, content)

    def referenced_subjects(self, context: str, content: Content) -> set[str]:
        """Return the subjects that a schema refers to, directly or indirectly."""
        return changes.referenced_subjects(self.state, context, content)

    async def formatted(self, context: str, content: Content, form: str) -> str:
        """Return a schema's text, in the requested format (`serialized` for Protobuf, or `resolved`), if any."""
        if not form:
            return content.text
        dependencies = changes.dependencies(self.state, contexts.qualified(context, ""), content)
        try:
            return await self._work.run("write", content, dependencies, form) or content.text
        except (InvalidSchemaError, WorkEndedError):  # an earlier registry may have accepted an invalid schema
            return content.text

    # --- changes ----------------------------------------------------------------------------------------

    async def change(self, plan: Callable[[RegistryState], Change]) -> Any:
        """Plan a change from the current state, and append it to the topic.

        A change continues even if its client disconnects, so that the next change is planned after this one.
        """
        return await completed(self._repaired(self._change(plan)))

    async def _repaired(self, change: Coroutine[Any, Any, T]) -> T:
        """Await a change. Then repair the keys whose last record has no effect."""
        try:
            return await change
        finally:
            await self._topic.repair()

    async def _change(self, plan: Callable[[RegistryState], Change]) -> Any:
        ends = asyncio.get_running_loop().time() + CHECK_S
        async with self._writing:
            await self._topic.catch_up()
            while True:
                change = plan(self.state)
                with contextlib.suppress(OvertakenError):
                    await self._topic.append(change.records)
                    return change.answer
                if asyncio.get_running_loop().time() > ends:
                    raise RegistryError.timed_out(f"other registries kept changing the topic for {CHECK_S:g} s")


@contextlib.asynccontextmanager
async def _deadline(ends: float | None = None) -> AsyncIterator[None]:
    """Limit the time of checks.

    :param ends: the event loop's time at the limit; None means CHECK_S from now.
    """
    try:
        async with asyncio.timeout(CHECK_S) if ends is None else asyncio.timeout_at(ends):
            yield
    except TimeoutError:
        raise RegistryError.timed_out(f"the schema was not checked within {CHECK_S:g} s") from None
