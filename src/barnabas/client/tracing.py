"""OpenTelemetry traces of records: from `send`, through the broker, to the code that processes a record.

    producer = barnabas.Producer("localhost:9092", interceptors=[barnabas.ProducerTracing()])
    consumer = barnabas.Consumer("localhost:9092", group="ctr", interceptors=[barnabas.ConsumerTracing()])
    for record in consumer:
        with barnabas.process_span(record):
            ...

A record carries its trace in the header `traceparent` (W3C Trace Context), or in the headers of the application's
propagator. Span names and attributes follow OpenTelemetry's semantic conventions for messaging, which may still change.
The extra `barnabas[otel]` installs OpenTelemetry's API. Without an SDK, this module does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from barnabas import __version__
from barnabas.client.interceptors import ClientContext, ConsumerInterceptor, ProducerInterceptor, ProducerRecord
from barnabas.errors import ApiError, BarnabasError
from barnabas.extras import naming_extra
from barnabas.model import Header
from barnabas.records import Record

with naming_extra("otel"):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

Attributes = dict[str, AttributeValue]

OPEN_SPANS_MAX = 10_000
"""The maximum number of open spans of records. Above it, the oldest span ends without an outcome."""

LINKS_MAX = 128
"""The maximum number of links of one span, which is the default limit of OpenTelemetry's SDK."""

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
CLIENT_ID = "messaging.client.id"
GROUP = "messaging.consumer.group.name"
MESSAGE_COUNT = "messaging.batch.message_count"
BODY_SIZE = "messaging.message.body.size"
OFFSET = "messaging.kafka.offset"
KEY = "messaging.kafka.message.key"
TOMBSTONE = "messaging.kafka.message.tombstone"
ERROR_TYPE = "error.type"


def provider_of_process() -> TracerProvider:
    """Return OpenTelemetry's global tracer provider."""
    return trace.get_tracer_provider()


def tracer_of(provider: TracerProvider | None) -> Tracer:
    """Return the tracer of Barnabas.

    :param provider: the tracer provider, or None for OpenTelemetry's global provider.
    """
    return trace.get_tracer("barnabas", __version__, provider)


def operation(name: str, kind: str, topic: str) -> Attributes:
    """Return the common attributes of all spans.

    :param name: the name of the operation.
    :param kind: the operation type in OpenTelemetry's semantic conventions.
    """
    return {SYSTEM: "kafka", OPERATION_NAME: name, OPERATION_TYPE: kind, DESTINATION: topic}


def creation_context(headers: Sequence[Header]) -> Context:
    """Return the trace context in a record's headers, or an empty context if there is none."""
    names = propagate.get_global_textmap().fields
    # If several headers have the same name, the last one is used, as in Kafka.
    carrier = {
        lower: value.decode("utf-8", "replace")
        for name, value in headers
        if value is not None and (lower := name.lower()) in names
    }
    return propagate.extract(carrier, Context())


def links_to(headers_of_records: Iterator[Sequence[Header]]) -> list[Link]:
    """Return links to the spans that sent the records, without duplicates, at most `LINKS_MAX`."""
    links: dict[tuple[int, int], Link] = {}
    for headers in headers_of_records:
        context = trace.get_current_span(creation_context(headers)).get_span_context()
        if context.is_valid:
            links.setdefault((context.trace_id, context.span_id), Link(context))
        if len(links) == LINKS_MAX:
            break
    return list(links.values())


class ProducerTracing(ProducerInterceptor):
    """Creates a span for each record that a producer sends, from `send` until the record has an outcome or `send`
    raises.

    The span is a child of the current span, and the record carries it in its headers. `send_many` and `send_arrow`
    become slow, because they also create a span for each record.

    :param tracer_provider: the tracer provider, or None for OpenTelemetry's global provider.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(tracer_provider)
        self._client_id = ""
        self._lock = threading.Lock()
        self._open: dict[tuple[Header, ...], Span] = {}
        """The open spans, by the headers that carry them."""

    def start(self, context: ClientContext) -> None:
        """Store the client's id for the attributes of spans."""
        self._client_id = context.client_id

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Start a span, and return the record with the headers that carry the span."""
        attributes = operation("send", "send", record.topic) | {CLIENT_ID: self._client_id}
        _add_content(attributes, record.key, record.value)
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        added = tuple((name, value.encode()) for name, value in carrier.items())
        if span.is_recording() and added:
            with self._lock:
                if len(self._open) >= OPEN_SPANS_MAX:
                    self._open.pop(next(iter(self._open))).end()
                self._open[added] = span
        # Without an SDK, the span is invalid: keep the application's headers unchanged.
        replaced = _propagated_names() if span.get_span_context().is_valid else carrier
        kept = tuple(header for header in record.headers if header[0].lower() not in replaced)
        return record._replace(headers=(*kept, *added))

    def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
        """End the span of a record, with its partition and offset, or with its error."""
        names = _propagated_names()
        carried = tuple((name, value) for name, value in record.headers or () if name.lower() in names)
        with self._lock:
            span = self._open.pop(carried, None)
        if span is None:
            return
        if record.partition >= 0:
            span.set_attribute(PARTITION, str(record.partition))
        if record.offset >= 0:
            span.set_attribute(OFFSET, record.offset)
        if error is not None:
            _fail(span, error)
        span.end()

    def close(self, timeout_s: float | None) -> None:
        """End the spans that are still open."""
        del timeout_s
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for span in left:
            span.end()


class ConsumerTracing(ConsumerInterceptor):
    """Creates a span for each chunk of records that a consumer returns, with links to the spans that sent the records.

    `process_span` creates the spans of the application's work.

    :param tracer_provider: the tracer provider, or None for OpenTelemetry's global provider.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(tracer_provider)
        self._client: Attributes = {}

    def start(self, context: ClientContext) -> None:
        """Store the client's id and group for the attributes of spans."""
        self._client = {CLIENT_ID: context.client_id}
        if context.group is not None:
            self._client[GROUP] = context.group

    def on_records(self, records: Sequence[Record]) -> None:
        """Create a span for records of one partition."""
        first = records[0]
        attributes = operation("poll", "receive", first.topic) | self._client
        attributes |= {PARTITION: str(first.partition), MESSAGE_COUNT: len(records), OFFSET: first.offset}
        links = links_to(record.headers or () for record in records)
        self._tracer.start_span(f"poll {first.topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links).end()


@contextmanager
def process_span(record: Record, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """Return a context manager that creates a span for the processing of a record; inside it, this span is the current
    span. It has a link to the span that sent the record. Without a current span in the caller, the new span continues
    the trace of the record. An exception marks the span as failed, and is raised again.

    :param record: a record that a consumer has returned.
    :param tracer_provider: the tracer provider, or None for OpenTelemetry's global provider.
    """
    attributes = operation("process", "process", record.topic)
    attributes |= {PARTITION: str(record.partition), OFFSET: record.offset}
    _add_content(attributes, record.key, record.value)
    headers = record.headers or ()
    has_parent = trace.get_current_span().get_span_context().is_valid
    with tracer_of(tracer_provider).start_as_current_span(
        f"process {record.topic}",
        context=None if has_parent else creation_context(headers),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=links_to(iter([headers])),
    ) as span:
        yield span


def _propagated_names() -> set[str]:
    return {name.lower() for name in propagate.get_global_textmap().fields}


def _add_content(attributes: Attributes, key: object, value: object) -> None:
    if isinstance(key, bytes | bytearray | memoryview):
        with suppress(UnicodeDecodeError):  # the semantic conventions require a key in text form
            attributes[KEY] = bytes(key).decode()
    elif isinstance(key, str):
        attributes[KEY] = key
    if value is None:
        attributes[TOMBSTONE] = True
    elif isinstance(value, bytes | bytearray | memoryview):
        attributes[BODY_SIZE] = len(value)


def _fail(span: Span, error: BarnabasError) -> None:
    span.set_status(StatusCode.ERROR, str(error))
    is_wrapped = type(error) is BarnabasError and error.__cause__ is not None
    kind = type(error.__cause__ if is_wrapped else error).__qualname__
    span.set_attribute(ERROR_TYPE, error.code.name if isinstance(error, ApiError) else kind)
