"""Reads values from the metadata store and checks their types and bounds.

The content of the metadata store is untrusted, because tools, other programs and people also write to it. The returned
values fit into the fields of the Kafka protocol, so responses with these values can always be encoded. An invalid value
raises `DamagedNodeError`, and the caller skips the node and logs it (`barnabas.coordination.damaged_nodes`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.addresses import without_brackets
from barnabas.coordination.metadata_store import NodeError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
BROKER_ID_MAX = INT32_MAX
PORT_MAX = 65_535
EPOCH_MAX = INT32_MAX - 2**20
"""The highest leader epoch that a broker accepts.

It is a million below the largest 32-bit integer, so a million elections remain possible.
"""
HOST_CHARACTERS_MAX = 255
TEXT_BYTES_MAX = 32_767
"""The maximum length in bytes of a string in a protocol message whose version is not flexible (KIP-482)."""
TOPIC_NAME_CHARACTERS_MAX = 249
"""The maximum length of a topic name, as in Kafka: the names of partition directories must be valid file names."""
SHOWN_CHARACTERS_MAX = 80

_TOPIC_NAME = re.compile(rf"(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{TOPIC_NAME_CHARACTERS_MAX}}}")
_HOST = re.compile(rf"[^\s\x00-\x1f\x7f]{{0,{HOST_CHARACTERS_MAX}}}")
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


class BadValueError(ValueError):
    """A value has the wrong type or is out of bounds."""


class DamagedNodeError(NodeError):
    """The data of a node is not in the form that Barnabas or Kafka write."""

    reason = "the node's value is invalid"


def shown(value: object) -> str:
    """Return a value for an error message: escaped, and truncated if long.

    >>> shown("h" * 40_000)[-9:]
    'hhhhhh...'
    """
    # Escape only the shown part, because the value may be a megabyte long.
    text = repr(value[:SHOWN_CHARACTERS_MAX] if isinstance(value, str | bytes) else value)
    is_long = len(text) > SHOWN_CHARACTERS_MAX or (isinstance(value, str | bytes) and len(value) > SHOWN_CHARACTERS_MAX)
    return f"{text[: SHOWN_CHARACTERS_MAX - 3]}..." if is_long else text


def whole_number(value: object, least: int, most: int) -> int:
    """Return a whole number. The value may be a string, because Kafka writes some numbers as strings.

    >>> whole_number("9092", 1, PORT_MAX)
    9092

    :raises BadValueError: the value is not a whole number, or is out of bounds.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadValueError(f"{shown(value)} is not a whole number from {least} to {most}")
    return value


def broker_ids(found: object) -> tuple[int, ...]:
    """Return a list of distinct broker ids.

    :raises BadValueError: the value is not a list of distinct broker ids.
    """
    if not isinstance(found, list):
        raise BadValueError(f"{shown(found)} is not a list of broker ids")
    if any(isinstance(each, bool | str) for each in found):
        raise BadValueError(f"{shown(found)} is not a list of numbers")
    ids = tuple(whole_number(each, 0, BROKER_ID_MAX) for each in found)
    if len(set(ids)) < len(ids):
        raise BadValueError(f"{shown(found)} names a broker twice")
    return ids


def is_topic_name(name: str) -> bool:
    """Return whether a name is a valid topic name, as in Kafka.

    >>> is_topic_name("clicks.eu-1"), is_topic_name(".."), is_topic_name("no json"), is_topic_name("")
    (True, False, False, False)
    """
    return _TOPIC_NAME.fullmatch(name) is not None


def is_text(value: object, bytes_max: int = TEXT_BYTES_MAX) -> bool:
    """Return whether a value is a string that a message can contain.

    >>> is_text("é"), is_text("\\ud800"), is_text(7), is_text("x" * 40_000)
    (True, False, False, False)
    """
    try:
        return isinstance(value, str) and len(value) <= bytes_max and len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def host(value: object) -> str:
    """Return a host name or address. It is empty if a broker listens on all addresses and advertises none.

    :raises BadValueError: the value is not a host.
    """
    bare = without_brackets(value) if isinstance(value, str) else value
    if not isinstance(bare, str) or not _HOST.fullmatch(bare) or not is_text(bare):
        raise BadValueError(f"{shown(value)} is not a host of at most {HOST_CHARACTERS_MAX} characters")
    return bare


def port(value: object) -> int:
    """Return a port.

    :raises BadValueError: the value is not a port.
    """
    return whole_number(value, 1, PORT_MAX)


def json_object(path: str, data: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a node.

    :raises DamagedNodeError: the data is not a JSON object.
    """
    try:
        found = json.loads(data)
    except (RecursionError, ValueError) as error:
        detail = shown(data) if isinstance(error, UnicodeError) else str(error)
        raise DamagedNodeError(path, f"invalid JSON: {detail[: 2 * SHOWN_CHARACTERS_MAX]}") from error
    if not isinstance(found, dict):
        raise DamagedNodeError(path, "not a JSON object")
    return found


class Fields:
    """The fields of the JSON object in a node.

    :raises DamagedNodeError: the data is not a JSON object. The methods also raise it if a field has the wrong type or
        is out of bounds.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._fields = json_object(path, data)

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def value(self, name: str, default: object = None) -> Any:
        """Return the unchecked value of a field."""
        return self._fields.get(name, default)

    def string(self, name: str, default: str | None = None, bytes_max: int = TEXT_BYTES_MAX) -> str:
        value = self._fields.get(name, default)
        if not is_text(value, bytes_max):
            raise self.wrong(name, f"{shown(value)} is not a string of at most {bytes_max} bytes")
        return str(value)

    def integer(self, name: str, least: int, most: int, default: int | None = None) -> int:
        try:
            return whole_number(self._fields.get(name, default), least, most)
        except BadValueError as error:
            raise self.wrong(name, str(error)) from error

    def brokers(self, name: str) -> tuple[int, ...]:
        try:
            return broker_ids(self._fields.get(name))
        except BadValueError as error:
            raise self.wrong(name, str(error)) from error

    def mapping(self, name: str, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        value = self._fields.get(name, default)
        if not isinstance(value, dict):
            raise self.wrong(name, f"{shown(value)} is not a JSON object")
        return value

    def sequence(self, name: str, default: Sequence[Any] | None = None) -> Sequence[Any]:
        value = self._fields.get(name, default)
        if not isinstance(value, list | tuple):
            raise self.wrong(name, f"{shown(value)} is not a list")
        return value

    def optional_string(self, name: str) -> str:
        """Return a string field; an empty string if the field is missing or null."""
        return "" if self._fields.get(name) is None else self.string(name)

    def boolean(self, name: str) -> bool:
        """Return a boolean field; False if it is missing."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, f"{shown(value)} is neither true nor false")
        return value

    def wrong(self, name: str, problem: str) -> DamagedNodeError:
        """Return the error to raise for an invalid field."""
        return DamagedNodeError(self._path, f"field {name!r}: {problem}")


def texts(found: object, what: str) -> tuple[str, ...]:
    """Return a list of strings.

    :raises BadValueError: the value is not a list of strings.
    """
    if not isinstance(found, list) or not all(map(is_text, found)):
        raise BadValueError(f"{shown(found)} is not a list of {what}")
    return tuple(found)


def topic_names(found: object) -> tuple[str, ...]:
    """Return a list of topic names.

    :raises BadValueError: the value is not a list of topic names.
    """
    names = texts(found, "topics")
    if strange := [each for each in names if not is_topic_name(each)]:
        raise BadValueError(f"{shown(strange[0])} is not a topic name")
    return names
