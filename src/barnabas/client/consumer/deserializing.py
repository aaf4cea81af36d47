"""Keys and values as the application's own objects: its functions applied to records as they are handed out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from barnabas.errors import DeserializationError
from barnabas.records import Record
from barnabas.records.record_protocol import timestamp_of

T_co = TypeVar("T_co", covariant=True)


class TopicDeserializer(Protocol[T_co]):
    """Makes objects in a way that may depend on the topic."""

    def deserialize(self, data: bytes, topic: str, is_key: bool = False) -> T_co:
        """Return what the bytes of a key or a value hold."""
        ...


Deserializer = Callable[[bytes], T_co] | TopicDeserializer[T_co]


class DeserializedRecord(NamedTuple):
    """A `Record` whose key and value are what the deserializers have made of them."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: Any
    key: Any
    value: Any
    headers: Any

    @property
    def timestamp(self) -> datetime | None:
        """The timestamp in UTC; see `Record`."""
        return timestamp_of(self.timestamp_ms)


class Deserializers:
    """Applies functions to keys and values that are there: None, as the value of a tombstone, stays None.

    >>> Deserializers(None, "utf-8")
    Traceback (most recent call last):
    TypeError: value_deserializer must be a function of bytes, for example json.loads, not 'utf-8'
    """

    def __init__(self, key: Deserializer[Any] | None, value: Deserializer[Any] | None) -> None:
        for name, given in (("key_deserializer", key), ("value_deserializer", value)):
            if given is not None and not callable(given) and not hasattr(given, "deserialize"):
                raise TypeError(f"{name} must be a function of bytes, for example json.loads, not {given!r}")
        self._key = _of_topic(key, is_key=True)
        self._value = _of_topic(value, is_key=False)

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def apply(self, records: list[Record]) -> tuple[list[Any], DeserializationError | None]:
        """Return the records up to the first that is refused, and why that one was."""
        made: list[Any] = []
        for record in records:
            name = "key_deserializer"
            try:
                key = record.key if self._key is None or record.key is None else self._key(record.key, record.topic)
                name = "value_deserializer"
                value = (
                    record.value
                    if self._value is None or record.value is None
                    else self._value(record.value, record.topic)
                )
            except Exception as cause:  # noqa: BLE001 - of the application's own function
                error = DeserializationError(
                    record.topic, record.partition, record.offset, f"{name}: {cause!r}; seek past it to go on"
                )
                error.__cause__ = cause
                return made, error
            made.append(
                DeserializedRecord(
                    record.topic,
                    record.partition,
                    record.offset,
                    record.timestamp_ms,
                    record.timestamp_type,
                    key,
                    value,
                    record.headers,
                )
            )
        return made, None


def _of_topic(given: Deserializer[Any] | None, *, is_key: bool) -> Callable[[bytes, str], Any] | None:
    """Return a function of bytes and topic for either kind of deserializer."""
    if given is None:
        return None
    if callable(given):
        function = given
        return lambda data, _topic: function(data)
    deserialize = given.deserialize
    return lambda data, topic: deserialize(data, topic, is_key)
