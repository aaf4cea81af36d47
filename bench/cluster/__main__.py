"""Measures three brokers with ZooKeeper on this machine.

    python -m bench.cluster                     all measurements, some minutes
    python -m bench.cluster leader shutdown     some measurements
    python -m bench.cluster --scale full --rounds 3
    python -m bench.cluster --json FILE         also writes the figures as data

- `leader`: the leader of a partition is killed; the time without an acknowledged write to the partition;
- `leaderships`: a broker that leads thousands of partitions is killed; the time until all partitions have a leader
again;
- `shutdown`: a broker is stopped under load; the longest pause of a producer, and the errors;
- `catch-up`: a follower fetches missing gigabytes while a producer continues;
- `resting`: memory and CPU time of idle brokers with a thousand partitions each;
- `cost`: CPU time per million records of the leader and of a follower.

Each measurement has its own cluster with a session timeout of six seconds. Throughput and latency are workloads of
`python -m bench`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.arena import fresh_folder
from bench.cluster.coming_back import measure_catch_up
from bench.cluster.going import measure_leader, measure_leaderships, measure_shutdown
from bench.cluster.report import Figure, lines, value_text
from bench.cluster.resting import measure_cost, measure_resting
from bench.cluster.stage import SIZES, Sizes
from bench.figures import interruptible, parent_of, parser_of, refuse_unknown, show
from bench.progress import Progress

MEASURES: dict[str, Callable[[Path, Sizes], Iterator[Figure]]] = {
    "leader": measure_leader,
    "leaderships": measure_leaderships,
    "shutdown": measure_shutdown,
    "catch-up": measure_catch_up,
    "resting": measure_resting,
    "cost": measure_cost,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of("bench.cluster", __doc__)
    parser.add_argument("measures", nargs="*", metavar="NAME", help=f"{', '.join(MEASURES)} [all]")
    parser.add_argument("--scale", choices=[*SIZES], default="quick", help="sizes of the measurements [quick]")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds [1]")
    asked = parser.parse_args(arguments)
    refuse_unknown(parser, asked.measures, MEASURES)
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure. Return the exit code."""
    asked = parse(arguments)
    parent = parent_of(asked)
    progress, figures, failed = Progress(), list[Figure](), False
    with interruptible() as interruption:
        for _ in range(asked.rounds):
            for name in asked.measures or MEASURES:
                try:
                    with fresh_folder(parent) as folder:
                        for figure in MEASURES[name](folder, SIZES[asked.scale]):
                            figures.append(figure)
                            progress.say(f"{name}: {figure.what}: {value_text([figure])}")
                except Exception as error:  # noqa: BLE001  # a failed measurement must not stop the others
                    failed = True
                    progress.say(f"{name} failed: {type(error).__name__}: {error}")
    show(asked, "bench.cluster", lines(figures), figures)
    return interruption.exit_code or int(failed)


if __name__ == "__main__":
    sys.exit(main())
