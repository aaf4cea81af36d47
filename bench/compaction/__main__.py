"""The speed of log compaction: the part of the codec, and the complete cleaner compared with Apache Kafka's cleaner.

    python -m bench.compaction                 both parts, some minutes
    python -m bench.compaction codec           in memory and on one thread, a minute or two
    python -m bench.compaction cleaner         the cleaners of both brokers
    python -m bench.compaction --scale quick   smaller sizes, which only show that the bench works
    python -m bench.compaction --json FILE     also writes the figures of the cleaners as data

- `codec`: building the map of latest offsets, and filtering the batches;
- `cleaner`: both brokers get the same records in one partition, and flush the records before the topic becomes
compacted. Each broker reports its own figures of the cleaning. During the cleaning, another client sends ApiVersions
every 5 ms (as in `bench.stalls`). The brokers take turns; the first turn of each broker is not counted.

Records have a key of 16 bytes and a value that is half compressible. The number of distinct, randomly chosen keys
is a tenth of the number of records. Batches have 16 KB, the default of Kafka's clients.
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
    """The sizes of the measurements.

    :param megabytes: the size of keys and values of each topic.
    :param codec_megabytes: the size of keys and values of each log in memory.
    """

    rounds: int
    warm_up: int
    megabytes: int
    codec_megabytes: int


SCALES = {"quick": Scale(1, 0, 20, 4), "default": Scale(3, 1, 400, 40), "full": Scale(5, 1, 1000, 40)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of("bench.compaction", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [both]")
    parser.add_argument("--scale", choices=SCALES, default="default", help="sizes of the measurements [default]")
    parser.add_argument("--rounds", type=int, help="number of measurements of each cleaner [3]")
    parser.add_argument("--megabytes", type=int, help="size of keys and values in a topic [400]")
    parser.add_argument("--map-mib", type=int, default=128, help="memory of the codec's map in MiB [128]")
    asked = parser.parse_args(arguments)
    refuse_unknown(parser, asked.parts, PARTS)
    scale = SCALES[asked.scale]
    asked.rounds = scale.rounds if asked.rounds is None else asked.rounds
    asked.megabytes = scale.megabytes if asked.megabytes is None else asked.megabytes
    return asked


def kinds() -> Iterator[Kind]:
    """Yield the kinds of records for the cleaners."""
    for value_bytes, compression in itertools.product(VALUE_BYTES, COMPRESSIONS):
        record_bytes = KEY_BYTES + value_bytes
        yield Kind(record_bytes, BATCH_BYTES // record_bytes, compression)


def title(kind: Kind) -> str:
    """Return the title of a table row.

    >>> title(Kind(116, 141, Compression.LZ4))
    '100 B, lz4'
    """
    compression = "uncompressed" if kind.compression is Compression.NONE else kind.compression.name.lower()
    return f"{kind.record_bytes - KEY_BYTES:,} B, {compression}"


class Measuring:
    """Measures the cleaners. The brokers run until the `with` block ends.

    :param figures: the list that gets the figures.
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
        """Return a running broker, or the reason why it is not available."""
        self._progress.say(f"starting {name}")
        try:
            server = start(name, stack.enter_context(fresh_folder(self._folder)))
        except UnavailableError as error:
            self._progress.say(f"{name} is left out: {error}")
            return str(error)
        stack.callback(server.stop)
        return Cleaned(server, CONTENDERS[name].accounts)

    def _measure(self, kind: Kind, started: dict[str, Cleaned | str]) -> None:
        self._progress.say(f"{title(kind)}: generating records")
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
            except Exception as error:  # noqa: BLE001  # keep the figures of the other cleaners
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
    """Run the command line. Return the exit code."""
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
