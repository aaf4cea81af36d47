"""Writes the summary and the details of docs/benchmarks.md from the results. The other parts are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import plots, results
from bench.drivers import DRIVERS
from bench.goals import (
    BARNABAS,
    GOALS,
    Goal,
    Results,
    against_confluent,
    against_kafka,
    client_cpu_per_million,
    server_cpu_per_million,
)
from bench.peers import SERVERS
from bench.results import Case, Result, Row
from bench.tables import table
from bench.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/benchmarks.md"
PICTURES = "images"
"""The directory of the pictures, next to the page."""
SUMMARY, DETAILS = "summary", "details"
"""The two parts of the page that this module writes."""
LATENCIES = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "max"}

Column = tuple[str, Callable[[Case, Row], str]]


def write(path: Path = PAGE, folder: Path = results.RESULTS) -> Path:
    """Write the generated parts of the page, and its pictures, from the results in a folder.

    :raises ValueError: if the page has no marks.
    """
    found = results.load(folder)
    pictures = plots.draw(found, path.parent / PICTURES)
    text = replaced(path.read_text(encoding="utf-8"), SUMMARY, "\n".join(summary(found, pictures)))
    text = replaced(text, DETAILS, "\n".join(details(found)))
    unfinished = path.with_suffix(".new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path


def marks(part: str) -> tuple[str, str]:
    """Return the marks of a part: the lines before and after this part of the page."""
    return f"<!-- python -m bench writes the {part} from here -->", f"<!-- to here: {part} -->"


def start(path: Path) -> None:
    """Create a page with only the marks, if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("".join(f"{begin}\n{end}\n" for begin, end in map(marks, (SUMMARY, DETAILS))), encoding="utf-8")


def replaced(text: str, part: str, new: str) -> str:
    """Return the page with a new text for one part.

    :raises ValueError: if the page has no marks of the part.
    """
    first, last = marks(part)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {first!r} and {last!r}; `python -m bench` writes between them")
    return f"{before}{first}\n\n{new.strip()}\n\n{last}{after}"


def summary(found: Results, pictures: Mapping[Path, str]) -> Iterator[str]:
    """Yield the lines of the short table and of the pictures.

    :param pictures: the titles of the pictures, by file name.
    """
    if not found:
        yield "Nothing has been measured yet: run `make bench`."
        return
    header = ["", "Barnabas", "x confluent-kafka", "x Apache Kafka", "paper, article"]
    yield from table(header, [cells[:5] for goal, cells in _goal_rows(found) if goal.is_in_summary], left=1)
    for picture, message in pictures.items():
        yield f"\n![{message}]({PICTURES}/{picture.name})"


def details(found: Results) -> Iterator[str]:
    """Yield the lines of all tables."""
    if not found:
        return
    yield from _goals(found)
    yield from _peers(found)
    for name in WORKLOADS:
        if name in found:
            yield from _workload(found[name])


def _goal_rows(found: Results) -> Iterator[tuple[Goal, list[str]]]:
    for goal in GOALS:
        result = found.get(goal.workload)
        case = result.case(goal.case) if result else None
        row = case.row(goal.server, goal.client) if case else None
        measured = goal.measured(case, row) if case and row else None
        has_rate = measured and measured.endswith("/s")
        ratios = [
            _ratio(against(case, row)) if case and row and has_rate else ""
            for against in (against_confluent, against_kafka)
        ]
        yield goal, [goal.what, measured or "not measured", *ratios, goal.published, goal.reach, goal.hope]


def _goals(found: Results) -> Iterator[str]:
    yield "### All figures\n"
    header = ["", "measured", "x confluent-kafka", "x Apache Kafka", "paper, article", "to reach", "to hope for"]
    rows = [cells for _, cells in _goal_rows(found)]
    yield from table(header, rows, left=1)
    yield ""
    yield (
        "The figures are medians. *x confluent-kafka* is the ratio to `confluent-kafka` (librdkafka) with Barnabas's "
        "broker in the same run. *x Apache Kafka* is the ratio to Apache Kafka with its own Java client in the same "
        "run, either its perf tools or the plain client, whichever is faster."
    )


def _peers(found: Results) -> Iterator[str]:
    yield "\n### Who takes part\n"
    versions: dict[str, str] = {}
    for result in found.values():
        versions |= result.versions
    rows = [[server.title, versions.get(server.title, "not measured"), server.settings] for server in SERVERS.values()]
    yield from table(["broker", "release", "set up"], rows, left=3)
    yield ""
    settings = {_family(driver.name): driver.settings for driver in DRIVERS.values() if driver.settings}
    yield from table(["client", "settings"], [[name, text] for name, text in settings.items()], left=2)
    yield ""
    packages = [
        f"{name} {release}" for name, release in versions.items() if name not in {s.title for s in SERVERS.values()}
    ]
    yield f"The measurements used these Python packages: {', '.join(sorted(packages))}."


def _family(name: str) -> str:
    return f"{BARNABAS}, all modes" if name.startswith(BARNABAS) else name


def _workload(result: Result) -> Iterator[str]:
    workload = WORKLOADS[result.workload]
    yield f"\n### {workload.name}: {workload.title}\n"
    yield f"{workload.about} The Kafka paper or the benchmark article of 2014 reports: {workload.published}.\n"
    yield f"Measured with `{result.command}` on {result.date}: {result.machine}.\n"
    for case in result.cases:
        if len(result.cases) > 1:
            yield f"#### {case.name}\n"
        yield from _case_table(result.workload, case)
        yield ""
    for line in result.skipped:
        yield f"- left out, or not finished: {line}"


def _case_table(workload: str, case: Case) -> Iterator[str]:
    columns = COLUMNS.get(workload, THROUGHPUT)
    rows = [[row.server, row.client, *(text(case, row) for _, text in columns)] for row in case.rows if row.runs]
    yield from table(["broker", "client", *(name for name, _ in columns)], rows, left=2)


def _rate(case: Case, row: Row) -> str:
    del case
    return f"{row.records_per_s or 0:,.0f}"


def _spread(case: Case, row: Row) -> str:
    del case
    rates = row.values(lambda run: run.records_per_s)
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


def _megabytes(case: Case, row: Row) -> str:
    return f"{(row.records_per_s or 0) * case.size / 1e6:,.1f}"


def _ratio(ratio: float | None) -> str:
    return f"{ratio:.2f}" if ratio is not None else ""


def _cpu(seconds: float | None) -> str:
    return f"{seconds:.2f}" if seconds is not None else ""


def _memory(case: Case, row: Row) -> str:
    del case
    return f"{max(row.values(lambda run: run.memory_server_mib), default=0):,.0f}"


def _records(case: Case, row: Row) -> str:
    del case
    return f"{row.runs[-1].records:,} x {len(row.runs)}"


def _stored(case: Case, row: Row) -> str:
    del case
    stored = row.median(lambda run: run.stored)
    return f"{stored:.2f}" if stored is not None else ""


def _latency_column(name: str, title: str) -> Column:
    def text(case: Case, row: Row) -> str:
        del case
        value = row.median(lambda run: run.latency.get(name))
        return f"{value:.2f}" if value is not None else ""

    return f"{title}, ms", text


def _worst_p99(case: Case, row: Row) -> str:
    del case
    values = row.values(lambda run: run.latency.get("p99_ms"))
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""


THROUGHPUT: list[Column] = [
    ("records/s", _rate),
    ("least to most", _spread),
    ("MB/s", _megabytes),
    ("x confluent-kafka", lambda case, row: _ratio(against_confluent(case, row))),
    ("x Apache Kafka", lambda case, row: _ratio(against_kafka(case, row))),
    ("CPU s a million: client", lambda _, row: _cpu(client_cpu_per_million(row))),
    ("broker", lambda _, row: _cpu(server_cpu_per_million(row))),
    ("broker's peak, MiB", _memory),
    ("records x runs", _records),
]
LATENCY: list[Column] = [
    *(_latency_column(name, title) for name, title in LATENCIES.items()),
    ("p99, least to most", _worst_p99),
    ("CPU s a million: clients", lambda _, row: _cpu(client_cpu_per_million(row))),
    ("broker", lambda _, row: _cpu(server_cpu_per_million(row))),
    ("records x runs", _records),
]


def _seconds(case: Case, row: Row) -> str:
    del case
    seconds = row.median(lambda run: run.seconds)
    return f"{seconds:.2f}" if seconds is not None else ""


COLUMNS: dict[str, list[Column]] = {
    "W3": [("bytes a message beyond the payload", _stored), ("records", lambda _, row: f"{row.runs[-1].records:,}")],
    "W12": LATENCY,
    "W12R": LATENCY,
    "W13": [("seconds", _seconds), *THROUGHPUT],
}
