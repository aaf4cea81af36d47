"""How fast logs are compacted: the codec's part of it, and the whole cleaner beside Apache Kafka's.

    python -m bench.compaction                       all of it, some minutes
    python -m bench.compaction codec                 in memory and on one thread, a minute or two
    python -m bench.compaction cleaner               the cleaners of both brokers
    python -m bench.compaction --scale quick         less of all; only shows that it works
    python -m bench.compaction --json FILE           keeps the figures of the cleaners as data too

- `codec`: the map of latest offsets, and what stays of the batches;
- `cleaner`: the same records are sent to both brokers, into one partition, and are on the disk before the topic becomes
  a compacted one. What is told is each broker's own account of the cleaning; meanwhile another client asks for
  ApiVersions every 5 ms (as in `bench.stalls`). The brokers take turns; the first turn of each is not counted.

Records have a key of 16 bytes and a value of which half can be compressed; there are a tenth as many keys as records,
chosen at random. Batches have 16 KB, as those of Kafka's clients by default.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from barnabas.clock import SYSTEM_CLOCK
from barnabas.records import Compression
from barnabas.records.compaction import COMPACTION
from bench.arena import fresh_folder
from bench.compaction import codec, report
from bench.compaction.cleaning import CONTENDERS, Cleaned, Work, start
from bench.compaction.records import KEY_BYTES, Kind, batches
from bench.compaction.report import Figures
from bench.downloads import UnavailableError
from bench.figures import interruptible, parent_of, parser_of, refuse_unknown, show
from bench.machine import describe
from bench.progress import Progress

PARTS = ("codec", "cleaner")
VALUE_BYTES = (1000, 100)
COMPRESSIONS = (Compression.NONE, Compression.LZ4)
BATCH_BYTES = 16_384
SEGMENTS = 8


class Scale(NamedTuple):
    """How much is measured.

    :param megabytes: keys and values of each topic.
    :param codec_megabytes: keys and values of each log in memory.
    """

    rounds: int
    warm_up: int
    megabytes: int
    codec_megabytes: int


SCALES = {"quick": Scale(1, 0, 20, 4), "default": Scale(3, 1, 400, 40), "full": Scale(5, 1, 1000, 40)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = parser_of("bench.compaction", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {' '.join(PARTS)} [both]")
    parser.add_argument("--scale", choices=SCALES, default="default", help="how much [default]")
    parser.add_argument("--rounds", type=int, help="how often each cleaner is measured [3]")
    parser.add_argument("--megabytes", type=int, help="of keys and values in a topic [400]")
    parser.add_argument("--map-mib", type=int, default=128, help="memory of the codec's map in MiB [128]")
    asked = parser.parse_args(arguments)
    refuse_unknown(parser, asked.parts, PARTS)
    scale = SCALES[asked.scale]
    asked.rounds = scale.rounds if asked.rounds is None else asked.rounds
    asked.megabytes = scale.megabytes if asked.megabytes is None else asked.megabytes
    return asked


def kinds() -> Iterator[Kind]:
    """Return the records that the cleaners get."""
    for value_bytes, compression in itertools.product(VALUE_BYTES, COMPRESSIONS):
        record_bytes = KEY_BYTES + value_bytes
        yield Kind(record_bytes, BATCH_BYTES // record_bytes, compression)


def title(kind: Kind) -> str:
    """Return what stands in the table.

    >>> title(Kind(116, 141, Compression.LZ4))
    '100 B, lz4'
    """
    compression = "uncompressed" if kind.compression is Compression.NONE else kind.compression.name.lower()
    return f"{kind.record_bytes - KEY_BYTES:,} B, {compression}"


class Measuring:
    """The cleaners under measurement: the brokers run until the end.

    :param figures: is filled.
    """

    def __init__(self, asked: argparse.Namespace, progress: Progress, figures: list[Figures]) -> None:
        self._rounds: int = asked.rounds
        self._warm_up = SCALES[asked.scale].warm_up
        self._megabytes: int = asked.megabytes
        self._folder = parent_of(asked)
        self._progress = progress
        self._figures = figures

    def run(self) -> None:
        """Measure all kinds of records."""
        with ExitStack() as stack:
            started = {name: self._start(name, stack) for name in CONTENDERS}
            for kind in kinds():
                self._measure(kind, started)

    def _start(self, name: str, stack: ExitStack) -> Cleaned | str:
        """Return a broker that runs, or why there is none."""
        self._progress.say(f"starting {name}")
        try:
            server = start(name, stack.enter_context(fresh_folder(self._folder)))
        except UnavailableError as error:
            self._progress.say(f"{name} is left out: {error}")
            return str(error)
        stack.callback(server.stop)
        return Cleaned(server, CONTENDERS[name].accounts)

    def _measure(self, kind: Kind, started: dict[str, Cleaned | str]) -> None:
        self._progress.say(f"{title(kind)}: making records")
        made = list(batches(kind, self._megabytes, SYSTEM_CLOCK.time_ms()))
        work = Work(kind, made, sum(map(len, made)) // SEGMENTS)
        figures = {name: Figures(title(kind), CONTENDERS[name].server.title) for name in started}
        self._figures += figures.values()
        for number, (name, broker) in itertools.product(range(self._warm_up + self._rounds), started.items()):
            if isinstance(broker, str):
                figures[name].problem = broker
                continue
            topic = f"compacted-{kind.record_bytes}-{kind.compression.name.lower()}-{number}"
            try:
                run = broker.measure(topic, work)
            except Exception as error:  # noqa: BLE001  # one that fails must not cost what the others came to
                figures[name].problem = f"{type(error).__name__}: {error}"
                self._progress.say(f"{title(kind)}, {name} failed: {figures[name].problem}")
                continue
            self._progress.say(
                f"{title(kind)}, {name}, {number + 1}: {run.megabytes_per_s:,.0f} MB/s in {run.account.seconds:.2f} s,"
                f" worst stall {run.pings.worst_ms:.1f} ms"
            )
            if number >= self._warm_up:
                figures[name].runs.append(run)


def main() -> int:
    """Do what the command line asks for; return the exit code."""
    asked = parse()
    parts = asked.parts or PARTS
    sys.stdout.write(f"{COMPACTION}, {describe()}\n")
    sys.stdout.flush()
    if "codec" in parts:
        megabytes = SCALES[asked.scale].codec_megabytes
        sys.stdout.write("\n".join(["", *codec.lines(megabytes, asked.map_mib), ""]))
        sys.stdout.flush()
    if "cleaner" not in parts:
        return 0
    figures: list[Figures] = []
    with interruptible() as interrupted:
        Measuring(asked, Progress(), figures).run()
    show(asked, "bench.compaction", ["", *report.lines(figures)], report.data(figures))
    return interrupted.exit_code or any(each.problem for each in figures)


if __name__ == "__main__":
    sys.exit(main())
