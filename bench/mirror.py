"""What a mirror carries a second, beside what its brokers take and give: produced, consumed, mirrored, in one run.

    python -m bench.mirror                           all of it, three rounds, a few minutes
    python -m bench.mirror small --rounds 5
    python -m bench.mirror --json FILE               keeps the figures as data too

Two brokers. In each round `barnabas perf` produces to the first one and reads that again, and `barnabas mirror --once`
brings it to the second, each as fast as it goes; a topic of its own each time:

- `small`: values of 100 bytes;
- `large`: values of 1,000 bytes;
- `lz4`: values of 100 bytes, compressed by the producer;
- `tens`: values of 100 bytes, ten in a batch without sequence numbers, sent as fast as that can be done at all
  (`--batch-records`): what costs the mirror is batches;
- `sequenced`: the same by `Producer`, with sequence numbers, as a mirror sends them: ten fill a batch.

The goal: a mirror reaches seven tenths of the slower of the two others. The mirror's time is that from its line `ready`
to the line `ended`: it finds the topic, makes it in the target, and has written its ledger. Values are of text, MB/s
are of values, before compression.
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
"""Of the slower of producing and consuming."""
LIMIT_S = 600.0
LINGER_MS = 5
"""So long batches wait to be full, where their size is given."""
PARTITIONS = 6
COMMAND = [sys.executable, *BARNABAS]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is mirrored."""

    size: int
    records: int
    compression: str = "none"
    batch_records: int | None = None
    """In each batch; None: what the producer finds best."""
    batch_bytes: int | None = None
    """When a batch is full; None: as above."""

    @property
    def flags(self) -> list[str]:
        """What `barnabas perf produce` is told."""
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
    """One round: records a second; and CPU time of the busiest process, in us a record.

    Each of the three goes as fast as its busiest process where no other wants its core. So where the machine does other
    things too, the CPU times still tell what the rates do not.
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
        """What the mirror reaches of the slower of the two others."""
        return self.mirrored / min(self.produced, self.consumed)

    @property
    def cpu_ratio(self) -> float:
        """The same, if each process had a core to itself."""
        return max(self.produced_cpu_us, self.consumed_cpu_us) / self.mirrored_cpu_us


class Stage:
    """Two brokers, and what is run against them.

    :param modes: how `barnabas perf` produces and consumes; empty: as it does by itself.
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
                raise RuntimeError(f"{topic}: {done.records} records of {scenario.records}")
            brokers_s = [broker.cpu_s - was for broker, was in zip((self._source, self._target), before_s, strict=True)]
            rates.append(done.records_per_s)
            cpu_us.append(max(done.cpu_client_s, *brokers_s) / done.records * 1e6)
        return Figures(name, scenario.size, scenario.records, *rates, *cpu_us)

    def _perf(self, action: str, topic: str, *options: str, mode: str) -> Outcome:
        given = ["--mode", mode] if mode else []
        where = ["--bootstrap", self._source.bootstrap, "--topic", topic]
        return parse_report(run_client([*COMMAND, "perf", action, *where, *options, *given, "--json"], LIMIT_S).output)


def mirrored(source: str, target: str, topic: str) -> Outcome:
    """Mirror a topic; return what that took from the mirror's line `ready` on."""
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


def told(runs: Sequence[Figures]) -> Iterator[str]:
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
    """Measure what is asked for; return the exit code."""
    parser = parser_of("bench.mirror", __doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="which; [all]")
    parser.add_argument("--rounds", type=int, default=3, help="how often [3]")
    parser.add_argument("--produce", default="", help="the mode of `barnabas perf produce` [its own]")
    parser.add_argument("--consume", default="", help="the mode of `barnabas perf consume` [its own]")
    asked = parser.parse_args(arguments)
    parent = parent_of(asked)
    runs: list[Figures] = []
    with interruptible() as interruption:
        for name in asked.scenarios or SCENARIOS:
            # Brokers of its own for each: what they have written must not fill the memory of the next one.
            with (
                fresh_folder(parent) as folder,
                MeasuredBroker(folder / "source") as source,
                MeasuredBroker(folder / "target") as target,
            ):
                stage = Stage(source, target, (asked.produce, asked.consume))
                for _ in range(asked.rounds):
                    runs.append(stage.measure(name, SCENARIOS[name]))
                    sys.stderr.write(f"{runs[-1]}\n")
    show(asked, "bench.mirror", told(runs) if runs else (), runs)
    return interruption.exit_code


if __name__ == "__main__":
    sys.exit(main())
