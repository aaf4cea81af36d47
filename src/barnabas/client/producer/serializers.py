"""Serializers: functions of the application that convert keys, values and rows of a table to bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from barnabas.errors import ConfigurationError
from barnabas.model import GivenHeaders
from barnabas.records import Delivery, OnDelivery
from barnabas.records.arrow import arrow_table

T_contra = TypeVar("T_contra", contravariant=True)


class TopicSerializer(Protocol[T_contra]):
    """A serializer whose result may depend on the topic, for example because each topic has its own schema."""

    def serialize(self, value: T_contra, topic: str, is_key: bool = False) -> bytes | None:
        """Return the bytes of a key or a value."""
        ...


Serializer = Callable[[T_contra], bytes | None] | TopicSerializer[T_contra]


class Serializers:
    """Calls the serializers of keys and values. They are not called for None (no key, or a tombstone).

    An exception of a serializer is raised unchanged, with a note that names the topic.

    >>> Serializers(None, "utf-8")
    Traceback (most recent call last):
    TypeError: value_serializer must be a function that returns bytes, not 'utf-8'
    """

    def __init__(self, key: Serializer[Any] | None, value: Serializer[Any] | None) -> None:
        for name, given in (("key_serializer", key), ("value_serializer", value)):
            if given is not None and not callable(given) and not hasattr(given, "serialize"):
                raise TypeError(f"{name} must be a function that returns bytes, not {given!r}")
        self._key = _of_topic(key, is_key=True)
        self._value = _of_topic(value, is_key=False)

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def key(self, topic: str, key: Any) -> Any:
        return _apply("key_serializer", self._key, topic, key)

    def value(self, topic: str, value: Any) -> Any:
        return _apply("value_serializer", self._value, topic, value)

    def keys(self, topic: str, keys: Sequence[Any] | None) -> Sequence[Any] | None:
        return keys if self._key is None or keys is None else [self.key(topic, each) for each in keys]

    def values(self, topic: str, values: Sequence[Any]) -> Sequence[Any]:
        return values if self._value is None else [self.value(topic, each) for each in values]

    def before(self, send: Callable[..., Delivery]) -> Callable[..., Delivery]:
        """Wrap `send` to serialize its arguments. Without serializers, return `send` itself."""
        if not self:
            return send

        def send_serialized(
            topic: str,
            value: Any = None,
            key: Any = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: GivenHeaders = (),
            on_delivery: OnDelivery | None = None,
        ) -> Delivery:
            return send(
                topic,
                self.value(topic, value),
                self.key(topic, key),
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                on_delivery=on_delivery,
            )

        return send_serialized


def _of_topic(given: Serializer[Any] | None, *, is_key: bool) -> Callable[[Any, str], bytes | None] | None:
    """Return a function of value and topic that calls a serializer with or without the topic, as the serializer
    requires.
    """
    if given is None:
        return None
    if callable(given):
        function = given
        return lambda value, _topic: function(value)
    serialize = given.serialize
    return lambda value, topic: serialize(value, topic, is_key)


def _apply(name: str, serializer: Callable[[Any, str], bytes | None] | None, topic: str, given: Any) -> Any:
    if serializer is None or given is None:
        return given
    try:
        return serializer(given, topic)
    except Exception as error:
        error.add_note(f"{name} raised this error for a record of topic {topic!r}")
        raise


VALUES = "value"


class ColumnSerializer(Protocol):
    """Converts each row of a table to a value, as `AvroSerializer` does."""

    def serialize_columns(self, table: Any, topic: str) -> Any:
        """Return an Arrow array of bytes with one value for each row."""
        ...


def with_values(batch: Any, topic: str, schema: ColumnSerializer, value: str | None) -> tuple[Any, str]:
    """Return the table with the serialized values in an additional column, and the name of this column.

    :raises ConfigurationError: the call also specifies a column of values, or pyarrow is not installed.
    :raises TypeError: `schema` is not a serializer of columns.
    """
    if value is not None:
        raise ConfigurationError(
            "send_arrow accepts either value (a column) or value_schema (which builds values from columns), not both"
        )
    if not hasattr(schema, "serialize_columns"):
        raise TypeError(f"value_schema must be an AvroSerializer, not {schema!r}")
    table = arrow_table(batch)
    name = VALUES
    while name in table.column_names:
        name = f"_{name}"
    return table.append_column(name, schema.serialize_columns(table, topic)), name
