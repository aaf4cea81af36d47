"""Figures of three brokers with ZooKeeper on this machine.

    python -m bench.cluster                          all of it, some minutes
    python -m bench.cluster leader shutdown          some
    python -m bench.cluster --scale full --rounds 3
    python -m bench.cluster --json FILE              keeps the figures as data too

- `leader`: the leader of a partition is killed: how long no write to it is acknowledged;
- `leaderships`: a broker that leads thousands of partitions is killed: how long until all are led again;
- `shutdown`: a broker is stopped under load: the longest pause of a producer, errors;
- `catch-up`: a follower that was away gets gigabytes, while a producer goes on;
- `resting`: memory and CPU time of brokers with a thousand partitions each and nothing to do;
- `cost`: CPU time a million records, of the leader and of a follower.

Each has a cluster of its own, whose sessions end after six seconds. Throughput and latency are workloads of
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
from bench.cluster.report import Figure, lines, told
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
    """Return what the command line asks for."""
    parser = parser_of("bench.cluster", __doc__)
    parser.add_argument("measures", nargs="*", metavar="NAME", help=f"of: {' '.join(MEASURES)} [all]")
    parser.add_argument("--scale", choices=[*SIZES], default="quick", help="how much is measured [quick]")
    parser.add_argument("--rounds", type=int, default=1, help="how often [1]")
    asked = parser.parse_args(arguments)
    refuse_unknown(parser, asked.measures, MEASURES)
    return asked


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit code."""
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
                            progress.say(f"{name}: {figure.what}: {told([figure])}")
                except Exception as error:  # noqa: BLE001  # the others are measured all the same
                    failed = True
                    progress.say(f"{name} failed: {type(error).__name__}: {error}")
    show(asked, "bench.cluster", lines(figures), figures)
    return interruption.exit_code or int(failed)


if __name__ == "__main__":
    sys.exit(main())
