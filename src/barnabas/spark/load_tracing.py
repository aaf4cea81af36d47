"""An OpenTelemetry span per load, with links to the spans that sent the records (`barnabas.client.tracing`).

Executors create no spans. After the commit, the driver reads the headers of a few records of each range. So tracing
adds no work per record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from opentelemetry.trace import SpanKind, StatusCode, TracerProvider

from barnabas.client.tracing import (
    DESTINATION,
    ERROR_TYPE,
    LINKS_MAX,
    MESSAGE_COUNT,
    links_to,
    operation,
    tracer_of,
)
from barnabas.errors import BarnabasError
from barnabas.model import Header
from barnabas.spark.load_types import LoadSettings, TableLoad
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.range_reading import RangeConnections, read_range

log = logging.getLogger(__name__)

TABLE = "barnabas.load.table"
SNAPSHOT = "barnabas.load.snapshot_id"


def traced(
    load: Callable[[], TableLoad], topics: Sequence[str], settings: LoadSettings, provider: TracerProvider
) -> TableLoad:
    """Run a load within a span, which is the current span during the load, and return the result."""
    name = ",".join(topics)
    with tracer_of(provider).start_as_current_span(
        f"load {name}",
        kind=SpanKind.CONSUMER,
        attributes=operation("load", "process", name),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            done = load()
        except Exception as error:
            span.set_status(StatusCode.ERROR, str(error))
            span.set_attribute(ERROR_TYPE, type(error).__qualname__)
            raise
        span.set_attribute(DESTINATION, ",".join(sorted({each.topic for each in done.ranges}) or topics))
        span.set_attribute(MESSAGE_COUNT, done.records)
        span.set_attribute(TABLE, done.table)
        if done.snapshot_id is not None:
            span.set_attribute(SNAPSHOT, str(done.snapshot_id))
        if span.is_recording():
            try:
                for link in links_to(_headers(done.ranges, settings)):
                    span.add_link(link.context)
            except Exception as error:  # noqa: BLE001 - the load is committed
                log.debug("cannot add all links to the span of a committed load: %r", error)
        return done


def _headers(ranges: Sequence[OffsetRange], settings: LoadSettings) -> Iterator[Sequence[Header]]:
    """Yield the headers of the first records of each range, of up to `LINKS_MAX` records in total."""
    share = max(1, LINKS_MAX // max(1, len(ranges)))
    with closing(RangeConnections()) as connections:
        for wanted in ranges[:LINKS_MAX]:
            first = replace(wanted, end_offset=min(wanted.end_offset, wanted.start_offset + share))
            try:
                for part in read_range(first, settings.bootstrap, settings.client_options, connections=connections):
                    for headers in part.column("headers").to_pylist():
                        yield [(each["name"], each["value"]) for each in headers or ()]
            except BarnabasError as error:
                log.debug("cannot add links for %s to the span of a load: %s", wanted, error)
