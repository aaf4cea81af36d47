"""One trace from the code that sends a record, over the broker and a consumer, to the load of its topic."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import barnabas
from barnabas.cli.load_rounds import LoadRounds, Round
from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark import LocalSessions, load
from barnabas.spark.load_types import TableLoad
from tests.support.broker_process import BrokerProcess

TOPIC = "traced"
COUNT = 5
TIMEOUT_S = 30.0


def test_trace_leads_from_a_send_over_a_consumer_to_each_load(broker: BrokerProcess, tmp_path: Path) -> None:
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

    def load_round() -> Round:
        lake = tmp_path / "lake"
        done = load(TOPIC, bootstrap=broker.bootstrap, warehouse=lake, tracer_provider=provider, spark=sessions)
        loaded.extend(done.tables)
        return done, {}

    def send_more(_seconds: float) -> None:
        if len(loaded) == 1:
            with barnabas.Producer(broker.bootstrap, interceptors=[barnabas.ProducerTracing(provider)]) as producer:
                producer.send(TOPIC, b"more")

    loaded: list[TableLoad] = []
    sessions = LocalSessions("traced")
    try:
        LoadRounds(load_round, 0.0, lambda _event: None, SYSTEM_CLOCK, send_more).run(3)
    finally:
        sessions.close()
    assert [each.records for each in loaded] == [COUNT, 1, 0]

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    *first_sends, last_send = named(f"send {TOPIC}")
    sends = {span.context.span_id for span in first_sends}
    assert len(sends) == COUNT
    assert {span.context.trace_id for span in first_sends} == {trace_id}
    assert {link.context.span_id for span in named(f"poll {TOPIC}") for link in span.links} == sends
    processed = named(f"process {TOPIC}")
    assert {span.parent.span_id for span in processed if span.parent} == sends
    assert {span.context.trace_id for span in processed} == {trace_id}
    loads = named(f"load {TOPIC}")
    assert [{link.context.span_id for link in span.links} for span in loads] == [
        sends,
        {last_send.context.span_id},
        set(),
    ]
    assert {link.context.trace_id for link in loads[0].links} == {trace_id}
    attributes = [dict(span.attributes or {}) for span in loads]
    assert [each["messaging.batch.message_count"] for each in attributes] == [COUNT, 1, 0]
    assert {each["barnabas.load.table"] for each in attributes} == {loaded[0].table}
    assert ["barnabas.load.snapshot_id" in each for each in attributes] == [True, True, False]
