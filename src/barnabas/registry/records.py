"""The records of the topic `_schemas`, as Confluent's registry writes them: JSON keys and values.

The key says what kind of record it is; a value of null deletes. Field order is that of Confluent's registry, which
compares keys as bytes when its topic is compacted.
"""

from __future__ import annotations

import json
from typing import Any

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
    """One record: key and value as JSON objects.

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
        """Return a record of bytes.

        :raises UnknownRecordError: key or value are not what a registry writes.
        """
        if key is None:
            raise UnknownRecordError("it has no key")
        try:
            decoded_key, decoded_value = json.loads(key), None if value is None else json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UnknownRecordError(f"it is no JSON: {error}") from error
        if not isinstance(decoded_key, dict) or not isinstance(decoded_key.get("keytype"), str):
            raise UnknownRecordError(f"its key names no kind: {decoded_key!r}")
        if decoded_value is not None and not isinstance(decoded_value, dict):
            raise UnknownRecordError(f"its value is no object: {decoded_value!r}")
        return cls(decoded_key, decoded_value)


def compact_json(value: Any) -> str:
    """Return JSON without spaces, as Confluent's registry writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def schema_key(subject: str, version: int) -> Key:
    """Return the key of a version of a subject."""
    return {"keytype": SCHEMA, "subject": subject, "version": version, "magic": 1}


def config_key(subject: str | None) -> Key:
    """Return the key of the settings of a subject; None: of all."""
    return {"keytype": CONFIG, "subject": subject, "magic": 0}


def mode_key(subject: str | None) -> Key:
    """Return the key of the mode of a subject; None: of all."""
    return {"keytype": MODE, "subject": subject, "magic": 0}


def deleted_subject(subject: str, version: int) -> Record:
    """Return the record that deletes all versions of a subject up to this one, but not for good."""
    key = {"keytype": DELETE_SUBJECT, "subject": subject, "magic": 0}
    return Record(key, {"subject": subject, "version": version})


def noop() -> Record:
    """Return the record that says nothing: whoever reads it has read all before it."""
    return Record({"keytype": NOOP, "magic": 0}, None)
