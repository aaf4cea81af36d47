"""Validates request bodies and converts them to values; the errors are the same as in Confluent's registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.registry import records
from barnabas.registry.errors import RegistryError
from barnabas.registry.state import AVRO, Content, Reference
from barnabas.registry.subject_config import (
    CONFIG_OBJECTS,
    CONFIG_SWITCHES,
    CONFIG_TEXTS,
    MODES,
    NUMBER_MAX,
    InvalidValueError,
    Level,
    check_config,
    check_extras,
    is_number,
    is_reference_version,
    shortened,
)

SUBJECT_BYTES_MAX = 1_000
REFERENCES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema to register, look up or check.

    :param id, version: only clients that import schemas (IMPORT mode) set them.
    """

    content: Content
    id: int | None = None
    version: int | None = None

    @classmethod
    def of(cls, body: Any) -> SchemaRequest:
        """Return the request in a body.

        :raises RegistryError: the body (422) or the schema (42201) is invalid.
        """
        fields = _object(body)
        text, kind = fields.get("schema"), fields.get("schemaType") or AVRO
        if text is None or text == "":
            raise RegistryError(42201, "Empty schema")
        if not isinstance(text, str):
            raise RegistryError.invalid_body("the field 'schema' must be a schema as a string")
        if not isinstance(kind, str):
            raise RegistryError.invalid_body("the field 'schemaType' must be AVRO, JSON or PROTOBUF")
        try:
            extras = check_extras(fields)
        except InvalidValueError as error:
            raise RegistryError.invalid_body(str(error)) from error
        content = Content(kind, text, _references(fields), records.compact_json(extras) if extras else "")
        return cls(content, _number(fields, "id"), _number(fields, "version"))


def _references(fields: dict[str, Any]) -> tuple[Reference, ...]:
    given = fields.get("references") or []
    if not isinstance(given, list) or len(given) > REFERENCES_MAX:
        raise RegistryError.invalid_body(f"the field 'references' must be a list of at most {REFERENCES_MAX}")
    return tuple(_reference(each) for each in given)


def _reference(given: Any) -> Reference:
    fields = _object(given)
    name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
    if not isinstance(name, str) or not isinstance(subject, str) or not is_reference_version(version):
        raise RegistryError.invalid_body("a reference must have a name, a subject and a version")
    assert isinstance(version, int)
    return Reference(name, subject, version)


def _number(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is None or (not isinstance(number, bool) and number in (0, -1)):
        return None
    if not is_number(number):
        raise RegistryError.invalid_body(
            f"the field '{name}' must be a number from 1 to {NUMBER_MAX}, not {shortened(number)}"
        )
    assert isinstance(number, int)
    return number


def parse_version(text: str) -> int | None:
    """Return a version number; None means the latest version.

    :raises RegistryError: the version is invalid (42202).

    >>> parse_version("7"), parse_version("latest"), parse_version("-1")
    (7, None, None)
    """
    if text in ("latest", "-1"):
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:12]) <= NUMBER_MAX:
        raise RegistryError.invalid_version(text)
    return int(text)


def parse_id(text: str) -> int:
    """Return a schema id.

    :raises RegistryError: the id is invalid (404, as for an unknown path).
    """
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdecimal() or int(digits[:12]) > NUMBER_MAX:
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(digits)


def parse_subject(text: str) -> str:
    """Return a valid subject name.

    :raises RegistryError: the subject name is invalid (42208).
    """
    if not text.strip() or len(text.encode(errors="replace")) > SUBJECT_BYTES_MAX or not text.isprintable():
        raise RegistryError(42208, f"The specified subject '{text[:100]}' is not a valid subject.")
    return text


def parse_config(body: Any) -> dict[str, Any]:
    """Return settings in the format of the topic.

    :raises RegistryError: the body (422) or the compatibility level (42203) is invalid.
    """
    fields = _object(body)
    config: dict[str, Any] = {}
    level = fields.get("compatibility", fields.get("compatibilityLevel"))
    if level is not None:
        config["compatibilityLevel"] = Level.of(level).upper()
    others = (*CONFIG_TEXTS, *CONFIG_SWITCHES, *CONFIG_OBJECTS)
    config |= {name: fields[name] for name in others if fields.get(name) is not None}
    try:
        check_config(config)
    except InvalidValueError as error:
        raise RegistryError.invalid_body(str(error)) from error
    if not config:
        raise RegistryError.invalid_level()
    return config


def parse_mode(body: Any) -> str:
    """Return the mode in a body.

    :raises RegistryError: the body (422) or the mode (42204) is invalid.
    """
    mode = _object(body).get("mode")
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise RegistryError.invalid_mode()
    return mode.upper()


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RegistryError.invalid_body("the body must be a JSON object")
    return body
