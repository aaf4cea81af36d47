"""The cost of the audit for a producer: runs the producer of workload W4 many times, alternately without and with the
audit.

    python -m bench.audit_cost                send, send_many and send_arrow; a few minutes
    python -m bench.audit_cost send --pairs 20
    python -m bench.audit_cost --json FILE    also writes the figures as data

The audit needs an idempotent producer, so both runs have acks=all. The difference may be smaller than the noise of the
machine. So each round has a third run, which measures the CPU time that the sending thread spends on the audit. The
result is a share of the CPU time of the process.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.client.admin import Admin
from barnabas.client.audit import producer_audit
from barnabas.client.interceptors import SentBatch
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.laboratory.perf.meter import Measured, Meter
from barnabas.laboratory.perf.produce_workload import ProduceJob, SendMode, produce
from barnabas.laboratory.perf.run_control import RunControl
from bench.arena import fresh_folder
from bench.broker_process import MeasuredBroker
from bench.figures import interruptible, parent_of, parser_of, show
from bench.tables import table

PARTITIONS = 6
RECORDS = 3_000_000
PAIRS = 8
WARM_UP_RECORDS = 200_000

COUNT = producer_audit.ProducerAudit.on_delivery_batch
"""The measured method, called directly, because `super()` would take a large part of the measured time."""


@dataclass(slots=True)
class Spent:
    """The CPU time that the sending thread has spent on the audit."""

    batches: int = 0
    counting_ns: int = 0
    reporting_ns: int = 0


class TimingMeter(Meter):
    """A meter that also resets the audit's CPU time after the warm-up."""

    def begin(self) -> None:
        TimedAudit.spent = Spent()
        super().begin()


class TimedAudit(producer_audit.ProducerAudit):
    """An audit that measures its CPU time. The audit also measures the cost of reading the clock, and subtracts it."""

    spent = Spent()

    def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
        clock = time.thread_time_ns
        called_ns = clock()
        begun_ns = clock()
        COUNT(self, batch, error)
        ended_ns = clock()
        self.spent.batches += 1
        self.spent.counting_ns += (ended_ns - begun_ns) - (begun_ns - called_ns)

    async def _report(self, *, is_last: bool) -> None:
        # The time includes other work of the event loop while audit events are in flight, so the figure is an upper
        # bound.
        begun_ns = time.thread_time_ns()
        await super()._report(is_last=is_last)
        self.spent.reporting_ns += time.thread_time_ns() - begun_ns


@dataclass(frozen=True, slots=True)
class Round:
    """The results of three runs: without the audit, with the audit, and with an audit that measures its CPU time.

    :param share: the audit's share of the process's CPU time.
    :param batch_ns: the audit's CPU time per batch, in nanoseconds.
    """

    mode: str
    plain_per_s: float
    audited_per_s: float
    plain_cpu_s: float
    audited_cpu_s: float
    share: float
    batch_ns: float
    batch_records: float


def run(
    bootstrap: str, topic: str, mode: SendMode, records: int, *, audit: bool, meter: type[Meter] = Meter
) -> Measured:
    """Run the producer, and return the measurement."""
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "audit": audit}
    job = ProduceJob(settings, topic, mode, records=records, warm_up=WARM_UP_RECORDS)
    return produce(job, meter(SYSTEM_CLOCK), RunControl())


def run_timed(bootstrap: str, topic: str, mode: SendMode, records: int) -> tuple[Measured, Spent]:
    """Run the producer with an audit that measures its CPU time."""
    usual = producer_audit.ProducerAudit
    producer_audit.ProducerAudit = TimedAudit  # type: ignore[misc]  # the producer looks up the class here
    try:
        return run(bootstrap, topic, mode, records, audit=True, meter=TimingMeter), TimedAudit.spent
    finally:
        producer_audit.ProducerAudit = usual  # type: ignore[misc]


def measure(bootstrap: str, topic: str, mode: SendMode, records: int, number: int) -> Round:
    """Run one round. The order of the first two runs alternates between rounds."""
    order = (False, True) if number % 2 == 0 else (True, False)
    runs = {audit: run(bootstrap, topic, mode, records, audit=audit) for audit in order}
    timed, spent = run_timed(bootstrap, topic, mode, records)
    plain, audited = runs[False], runs[True]
    batches = max(1, spent.batches)
    return Round(
        mode=str(mode),
        plain_per_s=plain.records / plain.elapsed_s,
        audited_per_s=audited.records / audited.elapsed_s,
        plain_cpu_s=plain.cpu_s / plain.records * 1e6,
        audited_cpu_s=audited.cpu_s / audited.records * 1e6,
        share=(spent.counting_ns + spent.reporting_ns) / 1e9 / timed.cpu_s,
        batch_ns=spent.counting_ns / batches,
        batch_records=records / batches,
    )


def table_lines(rounds: Sequence[Round]) -> list[str]:
    """Return a table of medians, one row per mode."""
    header = ["mode", "records/s", "audited", "ratio", "CPU s a million", "audited", "ratio", "of CPU time", "a batch"]
    rows = []
    for mode in dict.fromkeys(each.mode for each in rounds):
        of_mode = [each for each in rounds if each.mode == mode]
        median = {name: statistics.median(getattr(each, name) for each in of_mode) for name in Round.__slots__[1:]}
        rate_ratio = statistics.median(each.audited_per_s / each.plain_per_s for each in of_mode)
        cpu_ratio = statistics.median(each.audited_cpu_s / each.plain_cpu_s for each in of_mode)
        rows.append(
            [
                f"`{mode}`",
                f"{median['plain_per_s']:,.0f}",
                f"{median['audited_per_s']:,.0f}",
                f"{rate_ratio:.3f}",
                f"{median['plain_cpu_s']:.3f}",
                f"{median['audited_cpu_s']:.3f}",
                f"{cpu_ratio:.3f}",
                f"{median['share']:.2%}",
                f"{median['batch_ns'] / 1000:.1f} us",
            ]
        )
    return list(table(header, rows, left=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen modes. Return the exit code."""
    parser = parser_of("bench.audit_cost", __doc__)
    modes = [str(each) for each in SendMode]
    parser.add_argument("modes", nargs="*", choices=[*modes, []], metavar="MODE", help=f"{', '.join(modes)} [all]")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"number of rounds [{PAIRS}]")
    parser.add_argument("--records", type=int, default=RECORDS, help=f"number of records of 100 B per run [{RECORDS}]")
    asked = parser.parse_args(arguments)
    parent = parent_of(asked)
    rounds: list[Round] = []
    with interruptible() as interrupted:
        for mode in asked.modes or modes:
            # Each mode gets a new broker, because its log grows by gigabytes.
            with fresh_folder(parent) as folder, MeasuredBroker(folder) as broker, Admin(broker.bootstrap) as admin:
                for number in range(asked.pairs):
                    topic = f"audit-cost-{number}"
                    admin.create_topic(topic, partitions=PARTITIONS)
                    rounds.append(measure(broker.bootstrap, topic, SendMode(mode), asked.records, number))
                    admin.delete_topic(topic)
                    sys.stderr.write(f"{rounds[-1]}\n")
    show(asked, "bench.audit_cost", table_lines(rounds), rounds)
    return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())
