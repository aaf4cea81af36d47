"""One trace from the code that sends a record, over the broker and a consumer, to the load of its topic."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import barnabas
from barnabas.spark import load
from tests.support.broker_process import BrokerProcess

TOPIC = "traced"
COUNT = 5
TIMEOUT_S = 30.0


def test_trace_leads_from_a_send_over_a_consumer_to_a_load(broker: BrokerProcess, tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with (
        provider.get_tracer("application").start_as_current_span("request") as request,
        barnabas.Producer(broker.bootstrap, interceptors=[barnabas.ProducerTracing(provider)]) as producer,
    ):
        for number in range(COUNT):
            producer.send(TOPIC, b"%d" % number, key=b"member-42")
    trace_id = request.get_span_context().trace_id

    settings = {"auto.offset.reset": "earliest", "bootstrap.servers": broker.bootstrap}
    tracing = barnabas.ConsumerTracing(provider)
    with barnabas.Consumer(settings, group="readers", interceptors=[tracing]) as consumer:
        consumer.subscribe(TOPIC)
        read = 0
        while read < COUNT:
            for record in consumer.poll(timeout_s=TIMEOUT_S):
                read += 1
                with barnabas.process_span(record, provider):
                    pass

    loaded = load(TOPIC, bootstrap=broker.bootstrap, warehouse=tmp_path / "lake", tracer_provider=provider)
    assert loaded.records == COUNT

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    sends = {span.context.span_id for span in named(f"send {TOPIC}")}
    assert len(sends) == COUNT
    assert {span.context.trace_id for span in named(f"send {TOPIC}")} == {trace_id}
    assert {link.context.span_id for span in named(f"poll {TOPIC}") for link in span.links} == sends
    processed = named(f"process {TOPIC}")
    assert {span.parent.span_id for span in processed if span.parent} == sends
    assert {span.context.trace_id for span in processed} == {trace_id}
    [span] = named(f"load {TOPIC}")
    assert {link.context.span_id for link in span.links} == sends
    assert {link.context.trace_id for link in span.links} == {trace_id}
    attributes = dict(span.attributes or {})
    assert attributes["messaging.batch.message_count"] == COUNT
    assert attributes["barnabas.load.table"] == loaded.tables[0].table
