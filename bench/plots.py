"""The two pictures of the page: the throughput of one producer and of one consumer, compared with their peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from barnabas.reports.pictures import COLOURS, FAINT, INK, save
from bench.goals import BARNABAS, CONFLUENT, Results
from bench.results import Case, Row

OWN, PEER = COLOURS[0], "#c3c7cd"
ROW_INCHES = 0.34
"""The height of a bar with the gap to the next bar, in inches."""


@dataclass(frozen=True, slots=True)
class Bars:
    """One picture.

    :param file_name: the name of the PNG file.
    :param case: the case of the workload.
    :param own: the client whose row the title compares with the row of confluent-kafka.
    :param message: the title; `{ratio}` is the ratio of the two rows.
    :param label: returns the label of a row.
    """

    file_name: str
    case: str
    own: str
    message: str
    label: Callable[[Row], str]


def from_client_to_broker(row: Row) -> str:
    """Return the label of a producer's row, in the direction of the records.

    >>> from_client_to_broker(Row("Apache Kafka", "Barnabas `send`"))
    'Barnabas send → Apache Kafka'
    """
    return f"{row.client.replace('`', '')} → {row.server}"


def from_broker_to_client(row: Row) -> str:
    """Return the label of a consumer's row, in the direction of the records.

    >>> from_broker_to_client(Row("Apache Kafka", "confluent-kafka"))
    'Apache Kafka → confluent-kafka'
    """
    return f"{row.server} → {row.client.replace('`', '')}"


PICTURES = {
    "W4": Bars(
        "benchmark-producer.png",
        "one producer",
        "Barnabas `send`",
        "One producer, 100 B records: Barnabas's client sends {ratio:.1f} times as many as confluent-kafka",
        from_client_to_broker,
    ),
    "W8": Bars(
        "benchmark-consumer.png",
        "one consumer",
        "Barnabas, records",
        "One consumer, 100 B records: Barnabas's client reads {ratio:.1f} times as many as confluent-kafka",
        from_broker_to_client,
    ),
}


def draw(found: Results, folder: Path) -> dict[Path, str]:
    """Draw the pictures of workloads with results. Return the titles of the pictures by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for workload, bars in PICTURES.items():
        case = found[workload].case(bars.case) if workload in found else None
        if case and any(row.records_per_s for row in case.rows):
            path = folder / bars.file_name
            save(_figure(bars, case), path)
            drawn[path] = _message(bars, case)
    return drawn


def _figure(bars: Bars, case: Case) -> Figure:
    rows = sorted((row for row in case.rows if row.records_per_s), key=lambda row: row.records_per_s or 0.0)
    rates = [(row.records_per_s or 0.0) / 1e6 for row in rows]
    figure = Figure(figsize=(9, 1.1 + ROW_INCHES * len(rows)), dpi=110)
    axes = figure.subplots()
    axes.barh(range(len(rows)), rates, color=[OWN if row.client.startswith(BARNABAS) else PEER for row in rows])
    for number, rate in enumerate(rates):
        axes.text(rate + max(rates) * 0.008, number, f"{rate:.2f}", va="center", fontsize=8, color=INK)
    axes.set_yticks(range(len(rows)), [bars.label(row) for row in rows], fontsize=8.5)
    axes.set_xlabel("million records/s; blue: Barnabas's client", fontsize=8, color=FAINT)
    axes.tick_params(length=0, labelcolor=INK, labelsize=8.5)
    axes.set_xticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.suptitle(_message(bars, case), x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
    figure.tight_layout()
    return figure


def _message(bars: Bars, case: Case) -> str:
    own, reference = case.row(BARNABAS, bars.own), case.row(BARNABAS, CONFLUENT)
    if own and reference and own.records_per_s and reference.records_per_s:
        return bars.message.format(ratio=own.records_per_s / reference.records_per_s)
    return bars.message.partition(":")[0]
