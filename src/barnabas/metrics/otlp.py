"""Metrics in OpenTelemetry's protobuf format (OTLP): the `MetricsData` that clients push (KIP-714).

The package opentelemetry-proto contains the messages; the extra `barnabas[otel]` installs it. Its import takes about 60
ms. A broker imports it at startup (`load`), and a client before its first push.

The broker reads untrusted bytes. protobuf parses a message in one call, which takes 100 ms for 1 MiB of empty messages.
So `MetricsReader` parses the outer messages itself, and passes one metric at a time to protobuf.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import MalformedMessageError

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

FIELDS_MAX = 20_000
"""The maximum number of fields of the outer messages: `MetricsData`, `ResourceMetrics` and `ScopeMetrics`."""
POINTS_MAX = 5_000
"""The maximum number of points of a message; further points are skipped."""
METRIC_BYTES_MAX = 16 * 1024
"""The maximum size of one metric in bytes. Protobuf parses a metric of this size in at most 2 ms."""
RESOURCE_BYTES_MAX = 8 * 1024
ATTRIBUTES_MAX = 16
"""The maximum number of attributes of a point, and of a resource."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES_MAX = 10

_RESOURCE_METRICS = 1  # field number of MetricsData
_RESOURCE, _SCOPE_METRICS = 1, 2  # field numbers of ResourceMetrics
_METRICS = 2  # field number of ScopeMetrics

Attributes = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """A value of a metric.

    :ivar is_counter: True if the metric only grows.
    :ivar is_delta: True if the value is the growth since the last push.
    :ivar attributes: names and values; the attributes of the point come first.
    """

    name: str
    is_counter: bool
    is_delta: bool
    value: float
    attributes: Attributes = ()


@functools.cache
def is_installed() -> bool:
    """Return whether the package opentelemetry-proto is installed, without importing it."""
    try:
        return importlib.util.find_spec("opentelemetry.proto") is not None
    except ModuleNotFoundError:
        return False


def load() -> None:
    """Import the modules for decoding, so that the first message does not wait for the import."""
    for module in ("metrics.v1.metrics_pb2", "resource.v1.resource_pb2"):
        importlib.import_module(f"opentelemetry.proto.{module}")


class MetricsReader:
    """Reads the points of an encoded `MetricsData`. An instance allows one iteration. The iterator yields points. It
    yields None after some work without a point, so that callers can pause. It raises MalformedMessageError for an
    invalid `MetricsData`.

    :param data: the encoded message.
    :param resource_attributes: the resource attributes that are added to the resource's points.
    :ivar skipped: the number of skipped metrics: too large, neither gauge nor sum, or after `POINTS_MAX` points.
    """

    def __init__(self, data: bytes, resource_attributes: Sequence[str] = ()) -> None:
        self.skipped = 0
        self._data = data
        self._resource_attributes = frozenset(resource_attributes)
        self._fields_left = FIELDS_MAX
        self._points_left = POINTS_MAX

    def __iter__(self) -> Iterator[Point | None]:
        for number, span in self._fields(memoryview(self._data)):
            yield None
            if number == _RESOURCE_METRICS:
                yield from self._resource_metrics(span)

    def _resource_metrics(self, message: memoryview) -> Iterator[Point | None]:
        attributes: Attributes = ()
        for number, span in self._fields(message):
            yield None
            if number == _RESOURCE and len(span) <= RESOURCE_BYTES_MAX:
                attributes = self._of_resource(span)
            elif number == _SCOPE_METRICS:
                for inner, metric in self._fields(span):
                    yield None
                    if inner == _METRICS:
                        yield from self._metric(metric, attributes)

    def _of_resource(self, message: memoryview) -> Attributes:
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: PLC0415

        try:
            resource = Resource.FromString(bytes(message))
        except DecodeError as error:
            raise MalformedMessageError(f"cannot decode a resource: {error}") from None
        named = [each for each in resource.attributes if each.key in self._resource_attributes]
        return _attributes(named)

    def _metric(self, message: memoryview, of_resource: Attributes) -> Iterator[Point | None]:
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric  # noqa: PLC0415

        if len(message) > METRIC_BYTES_MAX or not self._points_left:
            self.skipped += 1
            return
        try:
            metric = Metric.FromString(bytes(message))
        except DecodeError as error:
            raise MalformedMessageError(f"cannot decode a metric: {error}") from None
        kind = metric.WhichOneof("data")
        if kind not in {"gauge", "sum"}:
            self.skipped += 1
            return
        is_counter = kind == "sum" and metric.sum.is_monotonic
        is_delta = kind == "sum" and metric.sum.aggregation_temporality == _DELTA
        points = metric.gauge.data_points if kind == "gauge" else metric.sum.data_points
        self.skipped += len(points) > self._points_left
        for point, _ in zip(points, range(self._points_left), strict=False):
            self._points_left -= 1
            value = _value(point)
            if value is None:
                yield None
                continue
            yield Point(metric.name, is_counter, is_delta, value, _attributes(point.attributes) + of_resource)

    def _fields(self, message: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield the number and the content of each field. The content is empty if the field has a fixed size."""
        position = 0
        while position < len(message):
            if self._fields_left == 0:
                raise MalformedMessageError(f"the metrics have more than {FIELDS_MAX} fields")
            self._fields_left -= 1
            key, position = _read_varint(message, position)
            number, wire_type = key >> 3, key & 7
            begin = position
            if wire_type == _VARINT:
                _, position = _read_varint(message, position)
                yield number, message[:0]
                continue
            if wire_type == _LENGTH_DELIMITED:
                size, begin = _read_varint(message, position)
            elif wire_type in _FIXED_SIZES:
                size = _FIXED_SIZES[wire_type]
            else:
                raise MalformedMessageError(f"wire type {wire_type} does not exist")
            position = begin + size
            if position > len(message):
                raise MalformedMessageError(f"a field has {size} bytes, but only {len(message) - begin} bytes are left")
            yield number, message[begin:position]


_DELTA = 1
"""A value of the enumeration AggregationTemporality."""


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position >= len(data):
            raise MalformedMessageError("a varint ends too early")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessageError(f"a varint has more than {_VARINT_BYTES_MAX} bytes")


def _value(point: NumberDataPoint) -> float | None:
    kind = point.WhichOneof("value")
    return None if kind is None else float(getattr(point, kind))


def _attributes(given: Iterable[KeyValue]) -> Attributes:
    return tuple((each.key, _text(each.value)) for each, _ in zip(given, range(ATTRIBUTES_MAX), strict=False))


def _text(value: AnyValue) -> str:
    """Return a simple value as text, and an empty string for an array or another complex value."""
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    return str(getattr(value, kind)) if kind in {"string_value", "int_value", "double_value"} else ""


def encode_metrics(points: Iterable[Point], resource: Mapping[str, str], started_ns: int, now_ns: int) -> bytes:
    """Return points as an encoded `MetricsData`. The extra `barnabas[otel]` must be installed.

    :param resource: the attributes of the resource.
    :param started_ns: the start of deltas or sums, in nanoseconds since the epoch.
    """
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue  # noqa: PLC0415
    from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb  # noqa: PLC0415
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: PLC0415

    def key_values(attributes: Iterable[tuple[str, str]]) -> list[KeyValue]:
        return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in attributes]

    def number(point: Point) -> NumberDataPoint:
        return pb.NumberDataPoint(
            start_time_unix_nano=started_ns if point.is_counter else 0,
            time_unix_nano=now_ns,
            as_double=point.value,
            attributes=key_values(point.attributes),
        )

    def metric(name: str, first: Point, numbers: list[NumberDataPoint]) -> Metric:
        if not first.is_counter:
            return pb.Metric(name=name, gauge=pb.Gauge(data_points=numbers))
        delta, cumulative = pb.AGGREGATION_TEMPORALITY_DELTA, pb.AGGREGATION_TEMPORALITY_CUMULATIVE
        temporality = delta if first.is_delta else cumulative
        growing = pb.Sum(data_points=numbers, is_monotonic=True, aggregation_temporality=temporality)
        return pb.Metric(name=name, sum=growing)

    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    metrics = [metric(name, found[0], [number(each) for each in found]) for name, found in by_name.items()]
    outer = pb.ResourceMetrics(
        resource=Resource(attributes=key_values(resource.items())), scope_metrics=[pb.ScopeMetrics(metrics=metrics)]
    )
    return bytes(pb.MetricsData(resource_metrics=[outer]).SerializeToString())
