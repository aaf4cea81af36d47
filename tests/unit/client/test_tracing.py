"""Spans of producers, consumers and the application's work, as OpenTelemetry's SDK exports them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from barnabas.client import tracing
from barnabas.client.interceptors import ProducerInterceptors, ProducerRecord
from barnabas.client.tracing import ConsumerTracing, ProducerTracing, process_span
from barnabas.errors import ApiError, ClosedError, ErrorCode, TimedOutError
from barnabas.model import Headers, TimestampType
from barnabas.records import Record


class Spans:
    """A provider, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("application")

    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> Spans:
    return Spans()


def record(headers: Headers, offset: int = 7, key: bytes | None = b"k", value: bytes | None = b"v") -> Record:
    return Record("clicks", 3, offset, 0, TimestampType.CREATE_TIME, key, value, tuple(headers))


def sent(tracing_: ProducerTracing, key: bytes | None = b"k", value: bytes | None = b"v") -> Record:
    """Return a record as a consumer gets it, which a producer has sent."""
    given = tracing_.on_send(ProducerRecord("clicks", value, key=key))
    return record(given.headers, key=key, value=value)


def ids(contexts: Iterable[SpanContext]) -> list[tuple[int, int]]:
    return [(each.trace_id, each.span_id) for each in contexts]


def test_send_span_lasts_until_delivery_and_has_place_and_size(spans: Spans) -> None:
    own = ProducerTracing(spans.provider)
    delivered = sent(own)
    assert spans.ended() == []
    own.on_delivery(delivered, None)
    [span] = spans.ended()
    assert (span.name, span.kind) == ("send clicks", SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "clicks",
        "messaging.destination.partition.id": "3",
        "messaging.client.id": "",
        "messaging.kafka.message.key": "k",
        "messaging.kafka.offset": 7,
        "messaging.message.body.size": 1,
    }


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), "NOT_ENOUGH_REPLICAS"),
        (TimedOutError("too late"), "TimedOutError"),
    ],
)
def test_failed_delivery_makes_a_failed_span(spans: Spans, error: ApiError | TimedOutError, name: str) -> None:
    own = ProducerTracing(spans.provider)
    own.on_delivery(sent(own)._replace(offset=-1), error)
    [span] = spans.ended()
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == name
    assert "messaging.kafka.offset" not in (span.attributes or {})


def test_refused_record_makes_a_failed_span_without_a_place(spans: Spans) -> None:
    own = ProducerTracing(spans.provider)
    every = ProducerInterceptors([own])
    errors = [ApiError(ErrorCode.MESSAGE_TOO_LARGE), ClosedError("closed"), KeyError("from the partitioner")]
    for error in errors:
        given = every.on_send(ProducerRecord("clicks", b"v"), lambda _record: None)
        every.refused([given], error)
    assert own._open == {}
    assert [span.status.status_code for span in spans.ended()] == [StatusCode.ERROR] * 3
    attributes = [dict(span.attributes or {}) for span in spans.ended()]
    assert [each["error.type"] for each in attributes] == ["MESSAGE_TOO_LARGE", "ClosedError", "KeyError"]
    assert not any("messaging.destination.partition.id" in each for each in attributes)


def test_record_carries_the_span_and_keeps_its_other_headers(spans: Spans) -> None:
    own = ProducerTracing(spans.provider)
    old = ("traceparent", b"00-11111111111111111111111111111111-2222222222222222-01")
    given = own.on_send(ProducerRecord("clicks", b"v", headers=(("host", b"web-7"), old)))
    [host, (name, value)] = given.headers
    assert host == ("host", b"web-7")
    own.close(None)
    [span] = spans.ended()
    assert name == "traceparent"
    assert value is not None
    assert value.split(b"-")[1:3] == [b"%032x" % span.context.trace_id, b"%016x" % span.context.span_id]


def test_send_is_a_child_of_the_current_span(spans: Spans) -> None:
    own = ProducerTracing(spans.provider)
    with spans.tracer.start_as_current_span("request") as request:
        delivered = sent(own)
    own.on_delivery(delivered, None)
    span = spans.ended()[-1]
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id


def test_key_that_is_no_text_and_tombstone(spans: Spans) -> None:
    own = ProducerTracing(spans.provider)
    own.on_delivery(sent(own, key=b"\xff", value=None), None)
    [span] = spans.ended()
    assert "messaging.kafka.message.key" not in (span.attributes or {})
    assert (span.attributes or {})["messaging.kafka.message.tombstone"] is True


def test_spans_on_their_way_are_limited(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "OPEN_SPANS_MAX", 2)
    own = ProducerTracing(spans.provider)
    first, *_ = [sent(own) for _ in range(3)]
    assert len(spans.ended()) == 1
    own.on_delivery(first, None)
    assert len(spans.ended()) == 1
    own.close(None)
    assert len(spans.ended()) == 3


def test_spans_that_are_not_sampled_are_not_kept() -> None:
    own = ProducerTracing(TracerProvider(sampler=ALWAYS_OFF))
    given = own.on_send(ProducerRecord("clicks", b"v"))
    [(name, value)] = given.headers
    assert name == "traceparent"
    assert value is not None
    assert int(value.split(b"-")[3], 16) & TraceFlags.SAMPLED == 0
    assert own._open == {}


def test_poll_span_links_each_sender_once(spans: Spans) -> None:
    producer, consumer = ProducerTracing(spans.provider), ConsumerTracing(spans.provider)
    first, second = sent(producer), sent(producer)
    consumer.on_records([first, second, second, record(())])
    [span] = spans.ended()
    assert (span.name, span.kind) == ("poll clicks", SpanKind.CLIENT)
    assert (span.attributes or {})["messaging.batch.message_count"] == 4
    assert (span.attributes or {})["messaging.operation.type"] == "receive"
    producer.close(None)
    assert ids(link.context for link in span.links) == ids(each.context for each in spans.ended()[1:])


def test_poll_span_has_a_limited_number_of_links(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINKS_MAX", 2)
    producer = ProducerTracing(spans.provider)
    ConsumerTracing(spans.provider).on_records([sent(producer) for _ in range(5)])
    assert len(spans.ended()[0].links) == 2


def test_process_span_continues_the_trace_of_the_sender(spans: Spans) -> None:
    producer = ProducerTracing(spans.provider)
    received = sent(producer)
    with process_span(received, spans.provider) as span:
        with spans.tracer.start_as_current_span("work") as work:
            pass
        assert work.get_span_context().trace_id == span.get_span_context().trace_id
    producer.on_delivery(received, None)
    _, process, send = spans.ended()
    assert (process.name, process.kind) == ("process clicks", SpanKind.CONSUMER)
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert ids(link.context for link in process.links) == ids([send.context])


def test_process_span_within_another_span_has_a_link_alone(spans: Spans) -> None:
    received = sent(ProducerTracing(spans.provider))
    with spans.tracer.start_as_current_span("batch") as batch, process_span(received, spans.provider):
        pass
    process = spans.ended()[0]
    assert process.parent is not None
    assert process.parent.span_id == batch.get_span_context().span_id
    assert len(process.links) == 1


@pytest.mark.parametrize(
    "headers", [(), (("traceparent", None),), (("traceparent", b"\xff\xfe"),), (("traceparent", b"00-0-0-0"),)]
)
def test_record_without_a_valid_trace_begins_a_new_one(spans: Spans, headers: Headers) -> None:
    with process_span(record(headers), spans.provider):
        pass
    [span] = spans.ended()
    assert span.parent is None
    assert span.links == ()
    assert tracing.creation_context(headers) == Context()


def test_exception_makes_a_failed_process_span_and_goes_on(spans: Spans) -> None:
    with pytest.raises(ZeroDivisionError), process_span(record(()), spans.provider):
        _ = 1 / 0
    [span] = spans.ended()
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("name", ["tracestate", "baggage", "TraceParent"])
def test_forwarded_record_keeps_no_old_context_and_its_span_ends(spans: Spans, name: str) -> None:
    own = ProducerTracing(spans.provider)
    given = own.on_send(ProducerRecord("clicks", b"v", headers=((name, b"old=1"), ("host", b"web-7"))))
    assert [each for each, _ in given.headers] == ["host", "traceparent"]
    own.on_delivery(record(given.headers), None)
    assert len(spans.ended()) == 1
