"""Reading and writing OpenTelemetry's `MetricsData`."""

from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.errors import MalformedMessageError
from barnabas.metrics.otlp import (
    ATTRIBUTES_MAX,
    FIELDS_MAX,
    METRIC_BYTES_MAX,
    POINTS_MAX,
    MetricsReader,
    Point,
    encode_metrics,
    is_installed,
)


def read(data: bytes, *resource_attributes: str) -> list[Point]:
    return [point for point in MetricsReader(data, resource_attributes) if point is not None]


def field(number: int, content: bytes) -> bytes:
    """Return a field with a length."""
    size, varint = len(content), b""
    while size > 0x7F:
        varint += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + varint + bytes([size]) + content


def test_points_come_back_as_they_were_written() -> None:
    points = [
        Point("queue.time", is_counter=False, is_delta=False, value=2.5, attributes=(("node_id", "1"),)),
        Point("queue.time", is_counter=False, is_delta=False, value=3.5, attributes=(("node_id", "2"),)),
        Point("connections", is_counter=True, is_delta=True, value=7.0),
        Point("rebalances", is_counter=True, is_delta=False, value=1.0),
    ]
    assert read(encode_metrics(points, {}, started_ns=1, now_ns=2)) == points


def test_points_get_the_wanted_attributes_of_their_resource() -> None:
    point = Point("lag", is_counter=False, is_delta=False, value=1.0, attributes=(("topic", "clicks"),))
    data = encode_metrics([point], {"group_id": "ctr", "service": "web"}, started_ns=1, now_ns=2)
    [read_point] = read(data, "group_id")
    assert read_point.attributes == (("topic", "clicks"), ("group_id", "ctr"))


def test_values_of_attributes_become_text() -> None:
    data = MetricsData()
    point = data.resource_metrics.add().scope_metrics.add().metrics.add(name="x").gauge.data_points.add(as_int=5)
    for name, value in {
        "text": AnyValue(string_value="a"),
        "yes": AnyValue(bool_value=True),
        "number": AnyValue(int_value=-3),
        "nothing": AnyValue(),
    }.items():
        point.attributes.append(KeyValue(key=name, value=value))
    [read_point] = read(data.SerializeToString())
    assert read_point.value == 5.0
    assert dict(read_point.attributes) == {"text": "a", "yes": "true", "number": "-3", "nothing": ""}


def test_histograms_and_large_metrics_are_skipped_and_counted() -> None:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="times").histogram.data_points.add(count=1)
    metrics.add(name="large" + "x" * METRIC_BYTES_MAX).gauge.data_points.add(as_int=1)
    metrics.add(name="small").gauge.data_points.add(as_int=1)
    reader = MetricsReader(data.SerializeToString())
    assert [point.name for point in reader if point is not None] == ["small"]
    assert reader.skipped == 2


def test_points_beyond_the_limit_are_skipped() -> None:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for number in range(10):
        metric = metrics.add(name=f"m{number}")
        for _ in range(POINTS_MAX // 8):
            metric.gauge.data_points.add(as_int=1)
    reader = MetricsReader(data.SerializeToString())
    assert len([point for point in reader if point is not None]) == POINTS_MAX
    assert reader.skipped == 2


def test_point_without_value_is_left_out() -> None:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.add(name="x").gauge.data_points.add()
    assert read(data.SerializeToString()) == []


def test_point_has_a_limited_number_of_attributes() -> None:
    attributes = tuple((f"a{number}", "") for number in range(2 * ATTRIBUTES_MAX))
    point = Point("x", is_counter=False, is_delta=False, value=1.0, attributes=attributes)
    [read_point] = read(encode_metrics([point], {}, started_ns=1, now_ns=2))
    assert read_point.attributes == attributes[:ATTRIBUTES_MAX]


def test_unknown_fields_of_all_wire_types_are_passed_over() -> None:
    unknown = b"\x78\x05" + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + field(14, b"later")
    known = encode_metrics([Point("x", is_counter=False, is_delta=False, value=1.0)], {}, started_ns=1, now_ns=2)
    assert [point.name for point in read(unknown + known + unknown)] == ["x"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x05\x00", "a field has 5 bytes, but only 1 bytes are left"),
        (b"\x0a", "ends too early"),
        (b"\x0b", "wire type 3"),
        (b"\xff" * 11, "more than 10 bytes"),
        (field(1, field(2, field(2, b"\x0a\x7f"))), "cannot decode a metric"),
        (field(1, field(1, b"\x0a\x7f")), "cannot decode a resource"),
        (field(1, field(2, field(2, field(1, b"\xff")))), "cannot decode a metric"),
        (b"\x0a\x00" * (FIELDS_MAX + 1), f"more than {FIELDS_MAX} fields"),
    ],
    ids=["field", "varint", "wire type", "long varint", "metric", "resource", "text", "many fields"],
)
def test_malformed_message_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        read(data)


def test_extra_is_installed_here() -> None:
    assert is_installed()
