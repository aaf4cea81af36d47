"""`barnabas perf`: measures throughput, latency and requests per second of any broker with Kafka's protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from barnabas.cli.name_completion import complete_groups, complete_topics
from barnabas.cli.options import connect, require_topics
from barnabas.cli.perf_options import (
    Common,
    NewTopic,
    Records,
    acks_option,
    common_options,
    compression_option,
    record_options,
    records_option,
    seconds_option,
    stacked,
    topic_options,
    warm_up_option,
)
from barnabas.cli.perf_output import ProgressLine, show_report
from barnabas.cli.signals import end_on_sigterm

if TYPE_CHECKING:
    from barnabas.laboratory.perf.produce_run import ProduceSpec
    from barnabas.laboratory.perf.report import Report
    from barnabas.laboratory.perf.run_context import RunContext
    from barnabas.laboratory.perf.topics import TopicSpec

EXIT_INTERRUPTED = 130
SEND_MODES = ("send", "many", "arrow")
READ_MODES = ("records", "poll", "arrow")
IN_FLIGHT_DEFAULT = 100
LATENCY_SIZE_MIN = 8
"""The minimum value size of `perf latency`. Each of its records contains the time at which it was due."""


@click.group()
def perf() -> None:
    """Measure brokers and clients: throughput, latency, requests.

    Each run prints its results with the properties of the machine; --json prints one line for programs. Records are
    generated in advance. After producing, the log is checked for missing records.
    """


@perf.command()
@stacked(
    click.option(
        "-m",
        "--mode",
        type=click.Choice(SEND_MODES),
        help="API of the producer: one record per call, a list, or an Arrow array.  [default: send]",
    ),
    click.option(
        "--batch-records",
        metavar="N",
        type=click.IntRange(min=1),
        help="Send exactly N records per request, pipelined, without a Producer.",
    ),
    click.option(
        "--in-flight",
        metavar="N",
        type=click.IntRange(min=1),
        help=f"With --batch-records: maximum requests in flight.  [default: {IN_FLIGHT_DEFAULT}]",
    ),
    click.option(
        "--producers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="Producer processes."
    ),
    record_options,
    topic_options,
    common_options,
)
def produce(
    mode: str | None,
    batch_records: int | None,
    in_flight: int | None,
    producers: int,
    sent: Records,
    topic: NewTopic,
    common: Common,
) -> int:
    """Produce at the maximum rate until all records are acknowledged.

    \b
    barnabas perf produce --records 5000000 --acks 1
    barnabas perf produce --batch-records 50 --size 200 --acks 0 --partitions 1
    """
    if mode is not None and batch_records is not None:
        raise click.UsageError("--mode selects an API of Producer, which --batch-records does not use; give only one")
    if in_flight is not None and batch_records is None:
        raise click.UsageError("--in-flight requires --batch-records; otherwise use -X max.in.flight=N")

    def run(context: RunContext) -> Report:
        from barnabas.laboratory.perf.produce_run import run_produce

        spec = _spec(sent, topic, mode or "send", batch_records, in_flight, producers)
        return run_produce(context, spec, _new_name)

    return _perform(common, run)


@perf.command()
@stacked(
    click.option(
        "--in-flight",
        metavar="N",
        type=click.IntRange(min=1),
        default=IN_FLIGHT_DEFAULT,
        show_default=True,
        help="Maximum requests in flight, unless acks is 0.",
    ),
    record_options,
    topic_options,
    common_options,
)
def requests(in_flight: int, sent: Records, topic: NewTopic, common: Common) -> int:
    """Send Produce requests of one record each, pipelined, to measure the cost of one request.

    \b
    barnabas perf requests --acks 0 --records 1000000
    """

    def run(context: RunContext) -> Report:
        from barnabas.laboratory.perf.produce_run import run_produce

        return run_produce(context, _spec(sent, topic, "send", 1, in_flight), _new_name, "requests")

    return _perform(common, run)


@perf.command()
@stacked(
    click.option(
        "-t", "--topic", metavar="TOPIC", required=True, shell_complete=complete_topics, help="Topic to read."
    ),
    click.option(
        "-m",
        "--mode",
        type=click.Choice(READ_MODES),
        default="records",
        show_default=True,
        help="API of the consumer: single records, lists, or Arrow batches.",
    ),
    click.option(
        "--consumers",
        metavar="N",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Consumer processes, which share the partitions.",
    ),
    click.option(
        "-g",
        "--group",
        metavar="GROUP",
        shell_complete=complete_groups,
        help="Consume as members of this group, from its committed offsets.",
    ),
    click.option("--fetch-bytes", metavar="BYTES", type=click.IntRange(min=1), help="Maximum bytes of one fetch."),
    records_option("all records"),
    seconds_option,
    warm_up_option,
    common_options,
)
def consume(
    topic: str,
    mode: str,
    consumers: int,
    group: str | None,
    fetch_bytes: int | None,
    records: int | None,
    seconds: float | None,
    warm_up: int,
    common: Common,
) -> int:
    """Consume a topic at the maximum rate, from its beginning to its current end.

    \b
    barnabas perf consume --topic clicks --mode arrow
    barnabas perf consume --topic clicks --consumers 3
    """
    if group is not None and warm_up:
        raise click.UsageError("--warm-up reads the beginning twice, which a group cannot; give only one of them")

    def run(context: RunContext) -> Report:
        from barnabas.laboratory.perf.consume_run import ConsumeSpec, run_consume
        from barnabas.laboratory.perf.consume_workload import ReadMode

        require_topics(context.admin, [topic])
        spec = ConsumeSpec(
            topic=topic,
            mode=ReadMode(mode),
            group=group,
            records=records,
            seconds=seconds,
            warm_up=warm_up,
            consumers=consumers,
            fetch_bytes=fetch_bytes,
        )
        return run_consume(context, spec)

    return _perform(common, run)


@perf.command()
@stacked(
    click.option(
        "-m", "--mode", type=click.Choice(SEND_MODES), default="send", show_default=True, help="Like --mode of produce."
    ),
    click.option(
        "--read-mode",
        type=click.Choice(READ_MODES),
        default="records",
        show_default=True,
        help="Like --mode of consume.",
    ),
    record_options,
    topic_options,
    common_options,
)
def both(mode: str, read_mode: str, sent: Records, topic: NewTopic, common: Common) -> int:
    """Produce and consume at the same time, in two processes.

    The reported rate is the consumer's rate while the producer runs.
    """

    def run(context: RunContext) -> Report:
        from barnabas.laboratory.perf.consume_workload import ReadMode
        from barnabas.laboratory.perf.paired_runs import run_both

        return run_both(context, _spec(sent, topic, mode), ReadMode(read_mode), _new_name)

    return _perform(common, run)


@perf.command()
@stacked(
    click.option(
        "--rate",
        metavar="N",
        type=click.FloatRange(min=0, min_open=True),
        default=10_000.0,
        show_default="10,000",
        help="Records per second.",
    ),
    click.option(
        "--seconds",
        metavar="S",
        type=click.FloatRange(min=0, min_open=True),
        default=10.0,
        show_default="10",
        help="Duration of the measurement.",
    ),
    click.option(
        "--warm-up",
        metavar="N",
        type=click.IntRange(min=0),
        help="Records to send before the measurement.  [default: those of one second]",
    ),
    click.option(
        "-s",
        "--size",
        metavar="BYTES",
        type=click.IntRange(min=LATENCY_SIZE_MIN),
        default=100,
        show_default=True,
        help="Size of a value.",
    ),
    acks_option,
    compression_option,
    topic_options,
    common_options,
)
def latency(
    rate: float,
    seconds: float,
    warm_up: int | None,
    size: int,
    acks: str,
    compression: str,
    topic: NewTopic,
    common: Common,
) -> int:
    """Send at a fixed rate, and measure the time from when a record is due to when the consumer has it.

    The load is an open loop: if the broker stalls, the latency of all records that become due during the stall
    increases.
    """

    def run(context: RunContext) -> Report:
        from barnabas.laboratory.perf.paired_runs import LatencySpec, run_latency

        spec = LatencySpec(
            topic=_topic_spec(topic),
            rate=rate,
            seconds=seconds,
            warm_up=round(rate) if warm_up is None else warm_up,
            size=size,
            acks=acks,
            compression=compression,
        )
        return run_latency(context, spec, _new_name)

    return _perform(common, run)


def _perform(common: Common, run: Callable[[RunContext], Report]) -> int:
    """Run a workload on the given cluster and print the report; return the exit code."""
    from barnabas.laboratory.perf.produce_workload import loss_warnings_disabled
    from barnabas.laboratory.perf.run_context import RunContext

    end_on_sigterm()
    line = ProgressLine(quiet=common.as_json)
    with connect(common.connection, quiet=common.as_json) as admin, loss_warnings_disabled():
        try:
            report = run(RunContext(admin, common.connection.bootstrap, common.connection.properties, line))
        finally:
            line.clear()
    show_report(report, as_json=common.as_json)
    return EXIT_INTERRUPTED if report.interrupted else 0


def _new_name() -> str:
    return f"perf-{uuid.uuid4().hex[:12]}"


def _topic_spec(topic: NewTopic) -> TopicSpec:
    from barnabas.laboratory.perf.topics import TopicSpec

    return TopicSpec(topic.name, topic.partitions, topic.replication_factor, topic.config, topic.keep)


def _spec(
    sent: Records,
    topic: NewTopic,
    mode: str,
    batch_records: int | None = None,
    in_flight: int | None = None,
    producers: int = 1,
) -> ProduceSpec:
    from barnabas.laboratory.perf.payloads import PayloadKind, PayloadSpec
    from barnabas.laboratory.perf.produce_run import ProduceSpec
    from barnabas.laboratory.perf.produce_workload import SendMode

    return ProduceSpec(
        topic=_topic_spec(topic),
        payload=PayloadSpec(PayloadKind(sent.payload), sent.size, sent.value_file),
        mode=SendMode(mode),
        acks=sent.acks,
        compression=sent.compression,
        records=sent.records,
        seconds=sent.seconds,
        warm_up=sent.warm_up,
        batch_records=batch_records,
        in_flight=in_flight or IN_FLIGHT_DEFAULT,
        producers=producers,
    )
