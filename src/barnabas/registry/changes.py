"""Plans changes: each function takes the state and returns the records to append and the response. No I/O.

Parsing and comparing schemas may take long, so other processes do this work between the steps. `service.py` ensures
that the relevant state does not change during this work.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from barnabas.registry import contexts, records
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.state import AVRO, JSON, Content, RegistryState, Version
from barnabas.registry.subject_config import IMPORT, READWRITE

NESTED_REFERENCES_MAX = 1_000
NESTED_CHARACTERS_MAX = 8_000_000
NESTED_DEPTH_MAX = 100
"""The maximum length of a chain of references between schemas."""


@dataclass(frozen=True, slots=True)
class Change:
    """The records to append, in order, and the response to send after the append."""

    records: tuple[Record, ...]
    answer: Any


def encode_version(version: Version) -> Record:
    """Return the record of a version."""
    value: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if version.content.schema_type != AVRO:
        value["schemaType"] = version.content.schema_type
    if version.content.references:
        value["references"] = [each.as_json() for each in version.content.references]
    if version.content.extras:
        value |= json.loads(version.content.extras)
    value["schema"] = version.content.text
    value["deleted"] = version.deleted
    return Record(records.schema_key(version.subject, version.version), value)


def dependencies(state: RegistryState, subject: str, content: Content) -> tuple[tuple[str, str], ...]:
    """Return name and text of all direct and indirect references of a schema, each after its own dependencies.

    :raises RegistryError: a referenced schema does not exist, or there are too many references (42201).
    """
    found: dict[tuple[str, int], tuple[str, str]] = {}

    def visit(part: Content, trail: tuple[tuple[str, int], ...]) -> None:
        for reference in part.references:
            home = (contexts.qualified(contexts.context_of(subject), reference.subject), reference.version)
            if home in found or home in trail:
                continue
            number = None if reference.version == -1 else reference.version
            try:
                version = state.version(home[0], number, deleted=True)
            except RegistryError as error:
                raise content.invalid(
                    f"no schema for the reference {reference.name!r}: subject {reference.subject!r}, "
                    f"version {reference.version}"
                ) from error
            if len(trail) >= NESTED_DEPTH_MAX:
                raise content.invalid(f"references are nested more than {NESTED_DEPTH_MAX} schemas deep")
            visit(version.content, (*trail, home))
            found[home] = (reference.name, version.content.text)
            if len(found) > NESTED_REFERENCES_MAX:
                raise content.invalid(f"the schema refers to more than {NESTED_REFERENCES_MAX} schemas")
            if sum(len(text) for _, text in found.values()) > NESTED_CHARACTERS_MAX:
                raise content.invalid(f"the referenced schemas have more than {NESTED_CHARACTERS_MAX} characters")

    visit(content, ())
    return tuple(found.values())


def referenced_subjects(state: RegistryState, context: str, content: Content) -> set[str]:
    """Return the subjects that a schema refers to, directly or indirectly. Missing schemas are skipped."""
    found: set[str] = set()
    seen: set[tuple[str, int]] = set()
    waiting = [content]
    while waiting and len(seen) < NESTED_REFERENCES_MAX:
        for reference in waiting.pop().references:
            home = (contexts.qualified(context, reference.subject), reference.version)
            found.add(home[0])
            if home in seen:
                continue
            seen.add(home)
            with contextlib.suppress(RegistryError):
                version = state.version(home[0], None if reference.version == -1 else reference.version, deleted=True)
                waiting.append(version.content)
    return found


def check_writable(state: RegistryState, subject: str, *, imported: bool = False) -> None:
    """Check that the mode of a subject permits a registration.

    :param imported: True if the request specifies id or version.
    :raises RegistryError: the mode forbids the registration (42205).
    """
    mode = state.mode(subject)
    context = contexts.context_of(subject)
    if imported and mode != IMPORT:
        raise RegistryError.not_permitted(f"Subject {subject} in context {context} is not in import mode")
    if not imported and mode != READWRITE:
        raise RegistryError.not_permitted(f"Subject {subject} in context {context} is not in read-write mode")


def _check_deletable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) not in (READWRITE, IMPORT):
        raise RegistryError.not_permitted(
            f"Subject {subject} in context {contexts.context_of(subject)} is in read-only mode"
        )


def find(state: RegistryState, subject: str, content: Content, *, deleted: bool = False) -> Version | None:
    """Return the latest version of a subject that equals a schema; None if there is none."""
    return find_in(state.versions(subject, deleted=deleted), content)


def find_in(versions: Sequence[Version], content: Content) -> Version | None:
    """Return the last of some versions that equals a schema; None if there is none.

    The function decodes each JSON Schema among the versions, so many large schemas take long.
    """
    exact = find_exact(versions, content)
    if exact is not None or content.schema_type != JSON:
        return exact
    # The order of members does not matter for the equality of JSON objects.
    wanted = _in_order(content)
    return next((each for each in reversed(versions) if _in_order(each.content) == wanted), None)


def find_exact(versions: Sequence[Version], content: Content) -> Version | None:
    """Return the last of some versions that has exactly this content; None if there is none."""
    return next((each for each in reversed(versions) if each.content == content), None)


@functools.lru_cache(1_000)
def _in_order(content: Content) -> Content:
    try:
        return replace(content, text=json.dumps(json.loads(content.text), sort_keys=True))
    except (ValueError, RecursionError):  # the text in a forged record may be invalid JSON
        return content


def register(state: RegistryState, subject: str, request: SchemaRequest) -> Change:
    """Return the change that registers a schema as the next version of a subject. The caller has checked the
    compatibility.

    :raises RegistryError: the schema is invalid (42201), or the mode forbids the registration (42205).
    """
    context, content = contexts.context_of(subject), request.content
    if request.id is not None:
        return _import(state, subject, request)
    number = request.version or state.next_version(subject)
    if request.version is not None and request.version != state.next_version(subject) and state.mode(subject) != IMPORT:
        raise content.invalid(f"version {number} is not the next one: {state.next_version(subject)}")
    schema_id = state.id_of(context, content) or state.next_id(context)
    version = Version(subject, number, schema_id, content)
    return Change((encode_version(version),), {"id": schema_id})


def _import(state: RegistryState, subject: str, request: SchemaRequest) -> Change:
    assert request.id is not None
    try:
        known = state.content(contexts.context_of(subject), request.id)
    except RegistryError:
        known = request.content
    if known != request.content:
        raise RegistryError.not_permitted(f"Overwrite new schema with id {request.id} is not permitted.")
    version = Version(subject, request.version or state.next_version(subject), request.id, request.content)
    return Change((encode_version(version),), {"id": request.id})


def delete_version(state: RegistryState, subject: str, number: int | None, *, permanent: bool) -> Change:
    """Return the change that deletes a version, softly or permanently.

    :raises RegistryError: there is no such subject or version (40401, 40402), the version is already (40406) or not yet
    (40407) soft-deleted, the mode forbids the deletion (42205), or another schema refers to the version (42206).
    """
    _check_deletable(state, subject)
    version = state.version(subject, number, deleted=number is not None or permanent)
    if version.deleted and not permanent:
        raise RegistryError.version_soft_deleted(subject, version.version)
    if not version.deleted and permanent:
        raise RegistryError.version_not_soft_deleted(subject, version.version)
    if state.is_referred_to(subject, version.version):
        raise RegistryError.reference_exists(subject, version.version)
    if permanent:
        changed = Record(records.schema_key(subject, version.version), None)
    else:
        changed = encode_version(replace(version, deleted=True))
    left = [each for each in state.versions(subject, deleted=True) if each.version != version.version]
    is_last = permanent and not left
    return Change((changed, *(_forgotten_settings(state, subject) if is_last else ())), version.version)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Change:
    """Return the change that deletes all versions of a subject, softly or permanently.

    :raises RegistryError: there is no such subject (40401), it is already (40404) or not yet (40405) soft-deleted, the
    mode forbids the deletion (42205), or another schema refers to a version (42206).
    """
    _check_deletable(state, subject)
    versions = state.versions(subject, deleted=True)
    living = [each for each in versions if not each.deleted]
    if not versions:
        raise RegistryError.subject_not_found(subject)
    if permanent and living:
        raise RegistryError.subject_not_soft_deleted(subject)
    if not permanent and not living:
        raise RegistryError.subject_soft_deleted(subject)
    for version in versions if permanent else living:
        if state.is_referred_to(subject, version.version):
            raise RegistryError.reference_exists(subject, version.version)
    if permanent:
        gone = [Record(records.schema_key(subject, each.version), None) for each in versions]
        return Change((*gone, *_forgotten_settings(state, subject)), [each.version for each in versions])
    deletion = records.deleted_subject(subject, living[-1].version)
    # As in Confluent's registry, the settings of the subject are kept. They apply again if a schema is registered
    # again.
    return Change((deletion,), [each.version for each in living])


def _forgotten_settings(state: RegistryState, subject: str) -> tuple[Record, ...]:
    forgotten = []
    if subject in state.modes:
        forgotten.append(Record(records.mode_key(subject), None))
    if subject in state.configs:
        forgotten.append(Record(records.config_key(subject), None))
    return tuple(forgotten)


def set_config(state: RegistryState, subject: str | None, config: dict[str, Any]) -> Change:
    """Return the change that sets settings of a subject, or the global settings if `subject` is None."""
    merged = state.configs.get(subject, {}) | config
    merged.pop("subject", None)
    value = merged if subject is None else {"subject": subject, **merged}
    answer = {("compatibility" if name == "compatibilityLevel" else name): config[name] for name in config}
    return Change((Record(records.config_key(subject), value),), answer)


def delete_config(state: RegistryState, subject: str | None) -> Change:
    """Return the change that resets a subject to the global settings, or the global settings to the defaults.

    :raises RegistryError: there is no such subject (40401).
    """
    old = state.configs.get(subject)
    if old is None and subject is not None:
        raise RegistryError.subject_not_found(subject)
    answer = {name: value for name, value in (old or {}).items() if name != "subject"}
    return Change((Record(records.config_key(subject), None),) if old else (), answer)


def set_mode(state: RegistryState, subject: str | None, mode: str, *, force: bool) -> Change:
    """Return the change that sets the mode of a subject, or the global mode if `subject` is None.

    :param force: True to permit IMPORT mode despite existing schemas.
    :raises RegistryError: the subject already has schemas (42205).
    """
    now = state.modes.get(subject, READWRITE)
    is_empty = not (state.subjects() if subject is None else state.versions(subject))
    if mode == IMPORT and now != IMPORT and not force and not is_empty:
        raise RegistryError.not_permitted("Cannot import since found existing subjects")
    value = {"mode": mode} if subject is None else {"subject": subject, "mode": mode}
    return Change((Record(records.mode_key(subject), value),), {"mode": mode})


def delete_mode(state: RegistryState, subject: str) -> Change:
    """Return the change that resets a subject to the global mode.

    :raises RegistryError: there is no such subject (40401).
    """
    if subject not in state.modes:
        raise RegistryError.subject_not_found(subject)
    return Change((Record(records.mode_key(subject), None),), {"mode": state.modes[subject]})
