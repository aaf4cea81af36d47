"""Compares the throughput of a mirror with the throughput of its brokers: produced, consumed and mirrored records per
second.

    python -m bench.mirror                  all scenarios, three rounds, a few minutes
    python -m bench.mirror small --rounds 5
    python -m bench.mirror --json FILE      also writes the figures as data

There are two brokers. In each round `barnabas perf` produces to the first one and consumes from it, and `barnabas
mirror --once` copies the records to the second broker. Each step runs at full speed, and each round has a new topic:

- `small`: values of 100 bytes;
- `large`: values of 1,000 bytes;
- `lz4`: values of 100 bytes, compressed by the producer;
- `tens`: values of 100 bytes, ten per batch, without sequence numbers, sent with `--batch-records` as fast as possible.
The cost of a mirror depends on the number of batches;
- `sequenced`: the same with `Producer` and sequence numbers, as a mirror sends them: ten records fill a batch.

The goal: the rate of a mirror is at least 70 % of the slower rate of producing and consuming. The mirror's time extends
from its line `ready` to its line `ended`, and includes finding the topic, creating it in the target, and writing the
ledger. Values are text; MB/s refer to values before compression.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.arena import fresh_folder
from bench.broker_process import BARNABAS, MeasuredBroker
from bench.drivers.job import Outcome, parse_report
from bench.figures import interruptible, parent_of, parser_of, show
from bench.processes import RunningClient, cpu_s, run_client
from bench.tables import table

GOAL = 0.7
"""The goal for the mirror's rate, as a share of the slower rate of producing and consuming."""
LIMIT_S = 600.0
LINGER_MS = 5
"""The linger time of producers in scenarios with a given batch size, in milliseconds."""
PARTITIONS = 6
COMMAND = [sys.executable, *BARNABAS]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: the size and the number of the mirrored records, and the producer's settings."""

    size: int
    records: int
    compression: str = "none"
    batch_records: int | None = None
    """The number of records per batch; None for the producer's own choice."""
    batch_bytes: int | None = None
    """The maximum size of a batch; None for the producer's own choice."""

    @property
    def flags(self) -> list[str]:
        """The options of `barnabas perf produce`."""
        batches = [] if self.batch_records is None else ["--batch-records", str(self.batch_records)]
        if self.batch_bytes is not None:
            batches += ["-X", f"batch.size={self.batch_bytes}", "-X", f"linger.ms={LINGER_MS}"]
        return ["--size", str(self.size), "--compression", self.compression, *batches]


SCENARIOS = {
    "small": Scenario(100, 4_000_000),
    "large": Scenario(1_000, 600_000),
    "lz4": Scenario(100, 4_000_000, "lz4"),
    "tens": Scenario(100, 1_000_000, batch_records=10),
    "sequenced": Scenario(100, 1_000_000, batch_bytes=1_200),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one round: records per second, and the CPU time of the busiest process in µs per record.

    On an otherwise idle machine, each rate depends on its busiest process. If other programs use the machine, the CPU
    times are more reliable than the rates.
    """

    scenario: str
    size: int
    records: int
    produced: float
    consumed: float
    mirrored: float
    produced_cpu_us: float
    consumed_cpu_us: float
    mirrored_cpu_us: float

    @property
    def ratio(self) -> float:
        """The mirror's rate relative to the slower rate of producing and consuming."""
        return self.mirrored / min(self.produced, self.consumed)

    @property
    def cpu_ratio(self) -> float:
        """The ratio computed from CPU times, as if each process had its own core."""
        return max(self.produced_cpu_us, self.consumed_cpu_us) / self.mirrored_cpu_us


class Stage:
    """Two brokers, and the programs that run against them.

    :param modes: the modes of `barnabas perf` for producing and consuming; "" for its default.
    """

    def __init__(self, source: MeasuredBroker, target: MeasuredBroker, modes: tuple[str, str]) -> None:
        self._source, self._target = source, target
        self._modes = modes
        self._numbers = itertools.count(1)

    def measure(self, name: str, scenario: Scenario) -> Figures:
        """Produce, consume and mirror one topic."""
        topic = f"{name}-{next(self._numbers)}"
        load = ["--records", str(scenario.records), *scenario.flags]
        rates, cpu_us = [], []
        runs: tuple[Callable[[], Outcome], ...] = (
            lambda: self._perf(
                "produce",
                topic,
                *load,
                "--partitions",
                str(PARTITIONS),
                mode="" if scenario.batch_records else self._modes[0],
            ),
            lambda: self._perf("consume", topic, mode=self._modes[1]),
            lambda: mirrored(self._source.bootstrap, self._target.bootstrap, topic),
        )
        for run in runs:
            before_s = [broker.cpu_s for broker in (self._source, self._target)]
            done = run()
            if done.records != scenario.records:
                raise RuntimeError(f"{topic}: {done.records} of {scenario.records} records were transferred")
            brokers_s = [broker.cpu_s - was for broker, was in zip((self._source, self._target), before_s, strict=True)]
            rates.append(done.records_per_s)
            cpu_us.append(max(done.cpu_client_s, *brokers_s) / done.records * 1e6)
        return Figures(name, scenario.size, scenario.records, *rates, *cpu_us)

    def _perf(self, action: str, topic: str, *options: str, mode: str) -> Outcome:
        given = ["--mode", mode] if mode else []
        where = ["--bootstrap", self._source.bootstrap, "--topic", topic]
        return parse_report(run_client([*COMMAND, "perf", action, *where, *options, *given, "--json"], LIMIT_S).output)


def mirrored(source: str, target: str, topic: str) -> Outcome:
    """Mirror a topic. Return the measurement, which starts at the mirror's line `ready`."""
    at_s: dict[str, float] = {}
    brought = 0
    cpu_before_s = 0.0

    def on_line(line: str) -> None:
        nonlocal brought, cpu_before_s
        event = json.loads(line) if line.startswith("{") else {}
        at_s[event.get("event", "")] = time.perf_counter()
        if event.get("event") == "ready":
            cpu_before_s = cpu_s(running.pid)
        elif event.get("event") == "ended":
            brought = event["records"]

    command = [*COMMAND, "mirror", "--from", source, "--to", target, "--topics", topic, "--once", "--json"]
    running = RunningClient(command, on_line)
    done = running.finish(LIMIT_S)
    return Outcome(brought, at_s["ended"] - at_s["ready"], done.cpu_s - cpu_before_s)


def table_lines(runs: Sequence[Figures]) -> Iterator[str]:
    """Return the medians as a table."""
    header = ["", "produced/s", "consumed/s", "mirrored/s", "MB/s", "of the slower", "CPU us", "", "", "by CPU"]
    rows = []
    for name in dict.fromkeys(run.scenario for run in runs):
        own = [run for run in runs if run.scenario == name]

        def median(value: Callable[[Figures], float], own: list[Figures] = own) -> float:
            return statistics.median(map(value, own))

        rows.append(
            [
                name,
                f"{median(lambda run: run.produced):,.0f}",
                f"{median(lambda run: run.consumed):,.0f}",
                f"{median(lambda run: run.mirrored):,.0f}",
                f"{median(lambda run: run.mirrored * run.size / 1e6):,.0f}",
                f"{median(lambda run: run.ratio):.0%}",
                f"{median(lambda run: run.produced_cpu_us):.2f}",
                f"{median(lambda run: run.consumed_cpu_us):.2f}",
                f"{median(lambda run: run.mirrored_cpu_us):.2f}",
                f"{median(lambda run: run.cpu_ratio):.0%}",
            ]
        )
    yield from table(header, rows, left=1)
    yield f"To reach: {GOAL:.0%} of the slower of producing and consuming."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure. Return the exit code."""
    parser = parser_of("bench.mirror", __doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="scenarios [all]")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds [3]")
    parser.add_argument("--produce", default="", help="mode of `barnabas perf produce` [its default]")
    parser.add_argument("--consume", default="", help="mode of `barnabas perf consume` [its default]")
    asked = parser.parse_args(arguments)
    parent = parent_of(asked)
    runs: list[Figures] = []
    with interruptible() as interruption:
        for name in asked.scenarios or SCENARIOS:
            # Each round has new brokers: the data of one round must not fill the memory of the next.
            with (
                fresh_folder(parent) as folder,
                MeasuredBroker(folder / "source") as source,
                MeasuredBroker(folder / "target") as target,
            ):
                stage = Stage(source, target, (asked.produce, asked.consume))
                for _ in range(asked.rounds):
                    runs.append(stage.measure(name, SCENARIOS[name]))
                    sys.stderr.write(f"{runs[-1]}\n")
    show(asked, "bench.mirror", table_lines(runs) if runs else (), runs)
    return interruption.exit_code


if __name__ == "__main__":
    sys.exit(main())
