"""The records of the topic `_schemas` in the format of Confluent's registry: JSON keys and values.

The key names the kind of record; a null value deletes the key. The fields have the same order as in Confluent's
registry, because compaction compares keys as bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from barnabas.registry.subject_config import is_number, shortened

Key = dict[str, Any]
Value = dict[str, Any] | None

SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, NOOP = (
    "SCHEMA",
    "CONFIG",
    "MODE",
    "DELETE_SUBJECT",
    "CLEAR_SUBJECT",
    "NOOP",
)


class UnknownRecordError(ValueError):
    """A record that no registry writes."""


class Record:
    """A record whose key and value are JSON objects.

    >>> Record(schema_key("clicks-value", 1), None).encoded()
    (b'{"keytype":"SCHEMA","subject":"clicks-value","version":1,"magic":1}', None)
    """

    __slots__ = ("key", "value")

    def __init__(self, key: Key, value: Value) -> None:
        self.key = key
        self.value = value

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Return key and value as bytes."""
        return compact_json(self.key).encode(), None if self.value is None else compact_json(self.value).encode()

    @classmethod
    def decode(cls, key: bytes | None, value: bytes | None) -> Record:
        """Return the record for a key and a value in bytes.

        :raises UnknownRecordError: no registry writes such a key or value.
        """
        if key is None:
            raise UnknownRecordError("the record has no key")
        try:
            decoded_key, decoded_value = decode_json(key), None if value is None else decode_json(value)
        except ValueError as error:
            raise UnknownRecordError(f"invalid JSON: {error}") from error
        if not isinstance(decoded_key, dict) or not isinstance(decoded_key.get("keytype"), str):
            raise UnknownRecordError(f"the key has no keytype: {shortened(decoded_key)}")
        if decoded_value is not None and not isinstance(decoded_value, dict):
            raise UnknownRecordError(f"the value is not an object: {shortened(decoded_value)}")
        return cls(decoded_key, decoded_value)


def decode_json(data: str | bytes) -> Any:
    """Return the value of JSON that another program wrote.

    :raises ValueError: the JSON is invalid, is nested too deeply, or has NaN or a surrogate, which responses cannot
        contain.
    """
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data))
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if _SURROGATE.search(text):
            compact_json(value).encode()
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def canonical_key(key: Key) -> bytes | None:
    """Return this registry's encoding of a key; None if this kind of record has no subject and version.

    Other registries encode the same key with another `magic` or another order of fields. Compaction compares bytes, so
    the registry must know all encodings of a key.

    >>> canonical_key({"magic": 0, "version": 1, "subject": "s", "keytype": "SCHEMA"})
    b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    """
    kind, subject = key.get("keytype"), key.get("subject")
    if kind == SCHEMA and isinstance(subject, str) and is_number(key.get("version")):
        return compact_json(schema_key(subject, key["version"])).encode()
    if kind in (CONFIG, MODE) and isinstance(subject, str | None):
        return compact_json(config_key(subject) if kind == CONFIG else mode_key(subject)).encode()
    return None


def compact_json(value: Any) -> str:
    """Return JSON without spaces, as Confluent's registry writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def schema_key(subject: str, version: int) -> Key:
    """Return the record key of a version of a subject."""
    return {"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1}


def config_key(subject: str | None) -> Key:
    """Return the record key of a subject's settings; None means the global settings."""
    return {"keytype": CONFIG, "subject": subject, "magic": 0}


def mode_key(subject: str | None) -> Key:
    """Return the record key of a subject's mode; None means the global mode."""
    return {"keytype": MODE, "subject": subject, "magic": 0}


def deleted_subject(subject: str, version: int) -> Record:
    """Return the record that soft-deletes the versions of a subject up to `version`."""
    key = {"keytype": DELETE_SUBJECT, "subject": subject, "magic": 0}
    return Record(key, {"subject": subject, "version": version})


def noop() -> Record:
    """Return a record without effect, which a reader uses to detect the end of the topic."""
    return Record({"keytype": NOOP, "magic": 0}, None)
