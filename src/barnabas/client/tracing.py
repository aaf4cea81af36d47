"""Traces of records by OpenTelemetry: from `send` over the broker to the code that processes a record.

    producer = barnabas.Producer("localhost:9092", interceptors=[barnabas.ProducerTracing()])
    consumer = barnabas.Consumer("localhost:9092", group="ctr", interceptors=[barnabas.ConsumerTracing()])
    for record in consumer:
        with barnabas.process_span(record):
            ...

A record carries its trace in the header `traceparent` (W3C Trace Context), or as the application's propagator has it.
Names and attributes of spans are those of OpenTelemetry's semantic conventions for messaging, which are in development.
The extra `barnabas[otel]` brings OpenTelemetry's API; without an SDK all of this does nothing.
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
"""Spans of records on their way. Beyond these the oldest ends without its outcome."""

LINKS_MAX = 128
"""Links of one span: the default limit of OpenTelemetry's SDK."""

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

    :param provider: None: OpenTelemetry's global one.
    """
    return trace.get_tracer("barnabas", __version__, provider)


def operation(name: str, kind: str, topic: str) -> Attributes:
    """Return the attributes of each span.

    :param name: what the client does.
    :param kind: the type of operation that the conventions have for that.
    """
    return {SYSTEM: "kafka", OPERATION_NAME: name, OPERATION_TYPE: kind, DESTINATION: topic}


def creation_context(headers: Sequence[Header]) -> Context:
    """Return the context in which a record was sent; an empty one where its headers have none."""
    names = propagate.get_global_textmap().fields
    # Of several headers with one name the last counts, as in Kafka.
    carrier = {
        lower: value.decode("utf-8", "replace")
        for name, value in headers
        if value is not None and (lower := name.lower()) in names
    }
    return propagate.extract(carrier, Context())


def links_to(headers_of_records: Iterator[Sequence[Header]]) -> list[Link]:
    """Return links to the spans in which records were sent, each once, at most `LINKS_MAX`."""
    links: dict[tuple[int, int], Link] = {}
    for headers in headers_of_records:
        context = trace.get_current_span(creation_context(headers)).get_span_context()
        if context.is_valid:
            links.setdefault((context.trace_id, context.span_id), Link(context))
        if len(links) == LINKS_MAX:
            break
    return list(links.values())


class ProducerTracing(ProducerInterceptor):
    """Makes a span of each record that a producer sends, from `send` until its outcome is known or `send` raises.

    The span is a child of the current one, and the record carries it. `send_many` and `send_arrow` get a span for each
    record, too, which costs them their speed.

    :param tracer_provider: None: OpenTelemetry's global one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(tracer_provider)
        self._client_id = ""
        self._lock = threading.Lock()
        self._open: dict[tuple[Header, ...], Span] = {}
        """The spans of records on their way, by the headers that carry them."""

    def start(self, context: ClientContext) -> None:
        """Take over the client's id."""
        self._client_id = context.client_id

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Begin a span, and return the record with the headers that carry it."""
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
        # Without an SDK the span is invalid, and the application's own headers stay.
        replaced = _propagated_names() if span.get_span_context().is_valid else carrier
        kept = tuple(header for header in record.headers if header[0].lower() not in replaced)
        return record._replace(headers=(*kept, *added))

    def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
        """End the span of a record, with its place or its error."""
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
        """End the spans that are left."""
        del timeout_s
        with self._lock:
            left, self._open = list(self._open.values()), {}
        for span in left:
            span.end()


class ConsumerTracing(ConsumerInterceptor):
    """Makes a span of each chunk of records that a consumer hands out, with links to the spans that sent them.

    `process_span` makes the spans of the application's work.

    :param tracer_provider: None: OpenTelemetry's global one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(tracer_provider)
        self._client: Attributes = {}

    def start(self, context: ClientContext) -> None:
        """Take over the client's id and group."""
        self._client = {CLIENT_ID: context.client_id}
        if context.group is not None:
            self._client[GROUP] = context.group

    def on_records(self, records: Sequence[Record]) -> None:
        """Make a span of records of one partition."""
        first = records[0]
        attributes = operation("poll", "receive", first.topic) | self._client
        attributes |= {PARTITION: str(first.partition), MESSAGE_COUNT: len(records), OFFSET: first.offset}
        links = links_to(record.headers or () for record in records)
        self._tracer.start_span(f"poll {first.topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links).end()


@contextmanager
def process_span(record: Record, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """Make a span of what is done with a record within the context; it is the current one there.

    The span has a link to the span that sent the record. Where no span is current, it continues that one's trace. An
    exception makes the span a failed one, and goes on.

    :param tracer_provider: None: OpenTelemetry's global one.
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
        with suppress(UnicodeDecodeError):  # the conventions have text only
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
