"""Reads values of the tree with their types and bounds: the one place where the tree's content is checked.

The metadata store is untrusted. Tools, other programs and slips of the hand write to it too. A value that these
functions return fits the protocol's fields, so no frame that contains it fails to encode. Any other value raises
`DamagedNodeError`; the caller skips the node and reports it (`barnabas.coordination.damaged_nodes`).
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
"""The highest leader epoch that a broker believes; a million elections are left above it."""
HOST_CHARACTERS_MAX = 255
TEXT_BYTES_MAX = 32_767
"""The longest string in a message that is not flexible."""
TOPIC_NAME_CHARACTERS_MAX = 249
"""The longest name whose partition folders still fit a file name, as in Kafka."""
SHOWN_CHARACTERS_MAX = 80

_TOPIC_NAME = re.compile(rf"(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{TOPIC_NAME_CHARACTERS_MAX}}}")
_HOST = re.compile(rf"[^\s\x00-\x1f\x7f]{{0,{HOST_CHARACTERS_MAX}}}")
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


class BadValueError(ValueError):
    """A value has another type than it should have, or is out of bounds."""


class DamagedNodeError(NodeError):
    """What stands in a node is not what Barnabas or Kafka write there."""

    reason = "the node's value cannot be understood"


def shown(value: object) -> str:
    """Return a value as an error message shows it: escaped, and cut where it is long.

    >>> shown("h" * 40_000)[-9:]
    'hhhhhh...'
    """
    # Only the part that is shown is escaped; the value may have a megabyte.
    text = repr(value[:SHOWN_CHARACTERS_MAX] if isinstance(value, str | bytes) else value)
    is_long = len(text) > SHOWN_CHARACTERS_MAX or (isinstance(value, str | bytes) and len(value) > SHOWN_CHARACTERS_MAX)
    return f"{text[: SHOWN_CHARACTERS_MAX - 3]}..." if is_long else text


def whole_number(value: object, least: int, most: int) -> int:
    """Return a whole number; Kafka writes some of them as strings.

    >>> whole_number("9092", 1, PORT_MAX)
    9092

    :raises BadValueError: it is none, or out of bounds.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadValueError(f"{shown(value)} is no whole number from {least} to {most}")
    return value


def broker_ids(found: object) -> tuple[int, ...]:
    """Return a list of brokers, each once.

    :raises BadValueError: it is something else.
    """
    if not isinstance(found, list):
        raise BadValueError(f"{shown(found)} is no list of brokers")
    if any(isinstance(each, bool | str) for each in found):
        raise BadValueError(f"{shown(found)} is no list of numbers")
    ids = tuple(whole_number(each, 0, BROKER_ID_MAX) for each in found)
    if len(set(ids)) < len(ids):
        raise BadValueError(f"{shown(found)} names a broker twice")
    return ids


def is_topic_name(name: str) -> bool:
    """Return whether a topic can have this name, as in Kafka.

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
    """Return the name or address of a host; empty where a broker listens on all addresses and names none.

    :raises BadValueError: it is none.
    """
    bare = without_brackets(value) if isinstance(value, str) else value
    if not isinstance(bare, str) or not _HOST.fullmatch(bare) or not is_text(bare):
        raise BadValueError(f"{shown(value)} is no host of at most {HOST_CHARACTERS_MAX} characters")
    return bare


def port(value: object) -> int:
    """Return a port.

    :raises BadValueError: it is none.
    """
    return whole_number(value, 1, PORT_MAX)


def json_object(path: str, data: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a node.

    :raises DamagedNodeError: there is none.
    """
    try:
        found = json.loads(data)
    except (RecursionError, ValueError) as error:
        detail = shown(data) if isinstance(error, UnicodeError) else str(error)
        raise DamagedNodeError(path, f"it is no JSON: {detail[: 2 * SHOWN_CHARACTERS_MAX]}") from error
    if not isinstance(found, dict):
        raise DamagedNodeError(path, "it is not a JSON object")
    return found


class Fields:
    """The fields of the JSON object in a node.

    :raises DamagedNodeError: there is none; so does each method for a field that has another type or is out of bounds.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._fields = json_object(path, data)

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def value(self, name: str, default: object = None) -> Any:
        """Return a field as it is."""
        return self._fields.get(name, default)

    def string(self, name: str, default: str | None = None, bytes_max: int = TEXT_BYTES_MAX) -> str:
        value = self._fields.get(name, default)
        if not is_text(value, bytes_max):
            raise self.wrong(name, f"{shown(value)} is no text of at most {bytes_max} bytes")
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
            raise self.wrong(name, f"{shown(value)} is no JSON object")
        return value

    def sequence(self, name: str, default: Sequence[Any] | None = None) -> Sequence[Any]:
        value = self._fields.get(name, default)
        if not isinstance(value, list | tuple):
            raise self.wrong(name, f"{shown(value)} is no list")
        return value

    def optional_string(self, name: str) -> str:
        """Return a string, empty where there is none or null."""
        return "" if self._fields.get(name) is None else self.string(name)

    def boolean(self, name: str) -> bool:
        """Return whether it is so; false where nothing is said."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, f"{shown(value)} is neither true nor false")
        return value

    def wrong(self, name: str, problem: str) -> DamagedNodeError:
        """Return the error of a field."""
        return DamagedNodeError(self._path, f"its field {name!r}: {problem}")


def texts(found: object, what: str) -> tuple[str, ...]:
    """Return a list of strings.

    :raises BadValueError: it is something else.
    """
    if not isinstance(found, list) or not all(map(is_text, found)):
        raise BadValueError(f"{shown(found)} is no list of {what}")
    return tuple(found)


def topic_names(found: object) -> tuple[str, ...]:
    """Return a list of names of topics.

    :raises BadValueError: it is something else.
    """
    names = texts(found, "topics")
    if strange := [each for each in names if not is_topic_name(each)]:
        raise BadValueError(f"{shown(strange[0])} is no name of a topic")
    return names
