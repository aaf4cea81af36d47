"""The content of the topic in memory: subjects with versions, settings, modes and ids. No I/O; not thread-safe.

All registries apply the same records in the same order, so they have the same state. `apply` rejects invalid records.
Soft-deleted versions stay in the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from barnabas.registry import contexts, records
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.subject_config import (
    MODES,
    NUMBER_MAX,
    READONLY,
    READONLY_OVERRIDE,
    READWRITE,
    InvalidValueError,
    check_config,
    check_extras,
    is_number,
    is_reference_version,
    shortened,
)

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to another schema: its name in the referring schema, and its subject and version."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """Return the reference in the format of the REST interface and the topic."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a schema, which determines its identity and its id."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    extras: str = ""
    """Metadata and rules as compact JSON, which the registry stores and returns but does not evaluate."""

    def invalid(self, reason: str) -> RegistryError:
        """Return the error 42201 about this schema."""
        references = [(each.name, each.subject, each.version) for each in self.references]
        return RegistryError.invalid_schema(reason, self.schema_type, self.text, references)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False


class RegistryState:
    """The state of the registry after all applied records."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, Version]] = {}
        self._homes: dict[tuple[str, int], dict[tuple[str, int], Content]] = {}
        self._ids: dict[tuple[str, Content], int] = {}
        self._last_ids: dict[str, int] = {}
        self._used_ids: dict[str, set[int]] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}

    # --- records ----------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Apply a record.

        :raises UnknownRecordError: no registry writes such a record; the state is unchanged.
        """
        kind, subject = record.key["keytype"], record.key.get("subject")
        if subject is not None and not isinstance(subject, str):
            raise UnknownRecordError(f"the subject is not a string: {shortened(record.key)}")
        if kind == records.SCHEMA:
            self._apply_schema(record)
        elif kind == records.CONFIG:
            _set_or_drop(self.configs, subject, _checked_config(record.value))
        elif kind == records.MODE:
            mode = None if record.value is None else record.value.get("mode")
            if record.value is not None and mode not in MODES:
                raise UnknownRecordError(f"the mode {shortened(mode)} does not exist")
            _set_or_drop(self.modes, subject, mode)
        elif kind in (records.DELETE_SUBJECT, records.CLEAR_SUBJECT):
            self._apply_deletion(record, for_good=kind == records.CLEAR_SUBJECT)

    def _apply_schema(self, record: Record) -> None:
        subject, number = record.key.get("subject"), record.key.get("version")
        if not isinstance(subject, str) or not is_number(number):
            raise UnknownRecordError(f"a version record needs a subject and a version number: {shortened(record.key)}")
        assert isinstance(number, int)
        if record.value is None:
            self._remove(subject, number)
            return
        version = decode_version(subject, number, record.value)
        self._remove(subject, number)
        self._versions.setdefault(subject, {})[number] = version
        context = contexts.context_of(subject)
        self._homes.setdefault((context, version.id), {})[subject, number] = version.content
        self._ids.setdefault((context, version.content), version.id)
        self._last_ids[context] = max(self._last_ids.get(context, 0), version.id)
        self._used_ids.setdefault(context, set()).add(version.id)
        for reference in version.content.references:
            home = (contexts.qualified(context, reference.subject), reference.version)
            self._referrers.setdefault(home, set()).add((subject, number))

    def _remove(self, subject: str, number: int) -> None:
        old = self._versions.get(subject, {}).pop(number, None)
        if old is None:
            return
        if not self._versions[subject]:
            del self._versions[subject]
        context = contexts.context_of(subject)
        versions_of_id = self._homes[context, old.id]
        del versions_of_id[subject, number]
        if old.content not in versions_of_id.values():
            self._ids.pop((context, old.content), None)
        if not versions_of_id:
            del self._homes[context, old.id]
        for reference in old.content.references:
            home = (contexts.qualified(context, reference.subject), reference.version)
            referrers = self._referrers.get(home, set())
            referrers.discard((subject, number))
            if not referrers:
                self._referrers.pop(home, None)

    def _apply_deletion(self, record: Record, *, for_good: bool) -> None:
        subject = record.key.get("subject")
        value = record.value or {}
        last = value.get("version", 0)
        if not isinstance(subject, str) or isinstance(last, bool) or not isinstance(last, int):
            raise UnknownRecordError(
                f"a deletion record needs a subject and a version: {shortened(record.key)}, {shortened(record.value)}"
            )
        for number, version in list(self._versions.get(subject, {}).items()):
            if for_good and version.deleted:
                self._remove(subject, number)
            elif not for_good and number <= last:
                self._versions[subject][number] = replace(version, deleted=True)

    # --- subjects and versions --------------------------------------------------------------------------

    @property
    def subject_count(self) -> int:
        """The number of subjects, including subjects with only soft-deleted versions."""
        return len(self._versions)

    def subjects(self, prefix: str = "", *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Return the subjects with a prefix. The options include, or select only, subjects whose versions are all
        soft-deleted.

        The prefix `:*:` selects all contexts, `:.name:` one context.
        """
        anywhere = prefix.startswith(":*:")
        context, name = contexts.split(prefix.removeprefix(":*:"))
        return sorted(
            subject
            for subject in self._versions
            if (anywhere or contexts.context_of(subject) == context)
            and contexts.split(subject)[1].startswith(name)
            and self._is_listed(subject, deleted, deleted_only)
        )

    def _is_listed(self, subject: str, deleted: bool, deleted_only: bool) -> bool:
        lives = any(not version.deleted for version in self._versions[subject].values())
        return not lives if deleted_only else lives or deleted

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Return the versions of a subject, oldest first; empty if the subject does not exist."""
        found = self._versions.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def version(self, subject: str, number: int | None, *, deleted: bool = False) -> Version:
        """Return a version of a subject; `number` None means the latest.

        :raises RegistryError: there is no such subject (40401) or version (40402).
        """
        candidates = self.versions(subject, deleted=deleted)
        if not candidates:
            raise RegistryError.subject_not_found(subject)
        if number is None:
            return candidates[-1]
        found = next((each for each in candidates if each.version == number), None)
        if found is None:
            raise RegistryError.version_not_found(number)
        return found

    def next_version(self, subject: str) -> int:
        """Return the number of a subject's next version; the numbers of soft-deleted versions are not reused.

        :raises RegistryError: the subject has the highest possible version (42205).
        """
        last = max(self._versions.get(subject, {}), default=0)
        if last >= NUMBER_MAX:
            raise RegistryError.not_permitted(
                f"Subject {subject} has version {NUMBER_MAX}, the largest; delete that version permanently first"
            )
        return last + 1

    def is_referred_to(self, subject: str, number: int) -> bool:
        """Return whether another version refers to this one; references from soft-deleted versions count, because these
        versions can still be read."""
        return bool(self._referrer_homes(subject, number))

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        found = (self._versions[referrer][version] for referrer, version in self._referrer_homes(subject, number))
        return sorted({each.id for each in found if deleted or not each.deleted})

    def _referrer_homes(self, subject: str, number: int) -> set[tuple[str, int]]:
        return self._referrers.get((subject, number), set()) - {(subject, number)}

    # --- ids --------------------------------------------------------------------------------------------

    def content(self, context: str, schema_id: int) -> Content:
        """Return the schema with an id.

        :raises RegistryError: there is no such schema (40403).
        """
        versions_of_id = self._homes.get((context, schema_id))
        if not versions_of_id:
            raise RegistryError.schema_not_found(schema_id)
        return next(iter(versions_of_id.values()))

    def versions_of_id(self, context: str, schema_id: int, *, deleted: bool = False) -> list[Version]:
        """Return the versions with a schema id in all subjects of a context."""
        versions_of_id = self._homes.get((context, schema_id), {})
        found = (self._versions[subject][number] for subject, number in sorted(versions_of_id))
        return [each for each in found if deleted or not each.deleted]

    def id_of(self, context: str, content: Content) -> int | None:
        """Return the id of a schema in a context; None if it has none yet."""
        return self._ids.get((context, content))

    def last_id(self, context: str) -> int:
        """Return the highest id ever assigned in a context; 0 if there is none."""
        return self._last_ids.get(context, 0)

    def next_id(self, context: str) -> int:
        """Return the id for a new schema of a context.

        After the highest possible id, the method assigns free ids in descending order. Ids of permanently deleted
        schemas must not be reused, and most of them are low.
        """
        following = self.last_id(context) + 1
        used = self._used_ids.get(context, set())
        return following if following <= NUMBER_MAX else next(n for n in range(NUMBER_MAX, 0, -1) if n not in used)

    def contexts(self) -> list[str]:
        """Return the contexts that have subjects, and the default context."""
        return sorted({contexts.DEFAULT, *map(contexts.context_of, self._versions)})

    def all_versions(self) -> Iterator[Version]:
        """Yield every version of every subject."""
        for subject in sorted(self._versions):
            yield from self.versions(subject, deleted=True)

    # --- settings ---------------------------------------------------------------------------------------

    def config(self, subject: str, name: str, default: Any) -> Any:
        """Return a setting from the subject, its context, or the global settings, in this order; or else the
        default."""
        for home in _from_near_to_far(subject):
            value = self.configs.get(home, {}).get(name)
            if value is not None:
                return value
        return default

    def mode(self, subject: str) -> str:
        """Return the effective mode of a subject."""
        if self.modes.get(None) == READONLY_OVERRIDE:
            return READONLY
        mode = next((self.modes[home] for home in _from_near_to_far(subject) if home in self.modes), READWRITE)
        return READONLY if mode == READONLY_OVERRIDE else mode


def decode_version(subject: str, number: int, value: dict[str, Any]) -> Version:
    """Return the version in the value of a record.

    :raises UnknownRecordError: the value is not a valid version.
    """
    schema_id, text, kind = value.get("id"), value.get("schema"), value.get("schemaType") or AVRO
    given = value.get("references") or []
    home = f"version {number} of {shortened(subject)}"
    if not is_number(schema_id) or not isinstance(text, str) or not isinstance(kind, str):
        raise UnknownRecordError(
            f"{home} needs an id from 1 to {NUMBER_MAX}, a schema and a type; its id is {shortened(schema_id)}"
        )
    assert isinstance(schema_id, int)
    try:
        references = tuple(_reference(each["name"], each["subject"], each["version"]) for each in given)
    except (KeyError, TypeError) as error:
        raise UnknownRecordError(f"{home} has invalid references: {shortened(given)}") from error
    try:
        extras = check_extras(value)
    except InvalidValueError as error:
        raise UnknownRecordError(f"{home}: {error}") from error
    content = Content(kind, text, references, records.compact_json(extras) if extras else "")
    return Version(subject, number, schema_id, content, bool(value.get("deleted", False)))


def _reference(name: object, subject: object, version: object) -> Reference:
    if not isinstance(name, str) or not isinstance(subject, str) or not is_reference_version(version):
        raise TypeError
    assert isinstance(version, int)
    return Reference(name, subject, version)


def _checked_config(value: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        check_config(value or {})
    except (InvalidValueError, RegistryError) as error:
        raise UnknownRecordError(f"settings with an invalid value: {error}") from error
    return value


def _set_or_drop(where: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value is None:
        where.pop(subject, None)
    else:
        where[subject] = value


def _from_near_to_far(subject: str) -> Iterator[str | None]:
    yield subject
    context = contexts.context_of(subject)
    if context != contexts.DEFAULT:
        yield f":{context}:"
    yield None
