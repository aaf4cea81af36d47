"""The results as data: one JSON file per workload, from which the page is generated.

A file contains the single runs instead of only their medians, so that the page can show other figures later. A new
measurement of a workload replaces the file of this workload and keeps the other files.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contender.

    :param cpu_server_s: the CPU time of the server during the run.
    :param memory_server_mib: the memory peak of the server since the start of the workload.
    :param latency: percentiles in milliseconds.
    :param histogram: pairs (upper bound in ms, count).
    :param series: pairs (MB done, records/s at this point).
    :param stored: the bytes on disk per record in addition to the payload (W3).
    :param stored_gb: the GB in the log at the start of the run (W11).
    """

    records: int
    seconds: float
    cpu_client_s: float = 0.0
    cpu_server_s: float = 0.0
    memory_server_mib: float = 0.0
    latency: dict[str, float] = field(default_factory=dict)
    histogram: list[list[float]] = field(default_factory=list)
    series: list[list[float]] = field(default_factory=list)
    stored: float | None = None
    stored_gb: float | None = None

    @property
    def records_per_s(self) -> float:
        """The throughput."""
        return self.records / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Row:
    """A contender (a client with a server) in one case of a workload. `problem` is the reason if there are no runs."""

    server: str
    client: str
    runs: list[Run] = field(default_factory=list)
    problem: str = ""

    def values(self, value: Callable[[Run], float | None]) -> list[float]:
        """Return one value per run; runs without the value are skipped."""
        return [found for run in self.runs if (found := value(run)) is not None]

    def median(self, value: Callable[[Run], float | None]) -> float | None:
        """Return the median of a value over the runs; None if no run has it."""
        values = self.values(value)
        return statistics.median(values) if values else None

    @property
    def records_per_s(self) -> float | None:
        """The median throughput."""
        return self.median(lambda run: run.records_per_s)


@dataclass(slots=True)
class Case:
    """The results of contenders with the same job, which can be compared.

    :param size: the size of a payload in bytes.
    """

    name: str
    size: int
    rows: list[Row] = field(default_factory=list)

    def row(self, server: str, client: str) -> Row | None:
        """Return the row of a contender; None if it has no runs."""
        return next((row for row in self.rows if (row.server, row.client) == (server, client) and row.runs), None)


@dataclass(slots=True)
class Result:
    """All measurements of a workload, and the machine."""

    workload: str
    date: str
    scale: str
    command: str
    machine: str
    versions: dict[str, str]
    cases: list[Case] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def case(self, name: str) -> Case | None:
        return next((case for case in self.cases if case.name == name), None)


def save(result: Result, folder: Path = RESULTS) -> Path:
    """Write the file of a workload. The file is replaced atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.workload}.json"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(_compact(asdict(result)) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


def load(folder: Path = RESULTS) -> dict[str, Result]:
    """Return the stored results by workload."""
    return {path.stem: read(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("W*.json"))}


def read(text: str) -> Result:
    """Parse the content of a result file."""
    data: dict[str, Any] = json.loads(text)
    cases = [Case(case["name"], case["size"], [_row(row) for row in case["rows"]]) for case in data.pop("cases")]
    return Result(**data, cases=cases)


def _row(row: dict[str, Any]) -> Row:
    return Row(row["server"], row["client"], [Run(**run) for run in row["runs"]], row["problem"])


def _compact(data: Any) -> str:
    """Return JSON with a line per run, and numbers with five significant digits."""
    lines = json.dumps(_rounded(data), ensure_ascii=False).replace('{"records": ', '\n{"records": ')
    return lines.replace('{"server": ', '\n{"server": ').replace('{"name": ', '\n{"name": ')


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items() if each not in ([], {}, None) or name in _KEPT}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


_KEPT = {"cases", "rows", "runs", "skipped", "versions", "problem"}
"""The fields that are written even if they are empty."""
