"""The goals in the tables of docs/benchmarks.md: the figures to reach, and the functions that find the measured
values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.results import Case, Result, Row

BARNABAS, KAFKA = "Barnabas", "Apache Kafka"
BARNABAS_CLUSTER, KAFKA_CLUSTER = "Barnabas, 3 brokers", "Apache Kafka, 3 nodes"
CONFLUENT = "confluent-kafka"
SPARK, SPARKS_SOURCE, LOADER = "Spark, `barnabas`", "Spark, its own `kafka` source", "`barnabas load`"
KAFKA_CLIENTS = ("Kafka's perf tools", "Kafka's Java client")
SMALL_GB = 1.0
LAST_SHARE = 0.75

Results = dict[str, Result]


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure to reach, and the function that returns the measured value from the results.

    :param what: the text of the first column.
    :param published: the figure of the paper or the article; empty if neither has this figure.
    :param reach: the required value, as text.
    :param hope: the hoped-for value, as text.
    :param measured: returns the measured value as text, or None without a measurement.
    :param is_in_summary: True if the short table at the head of the page has this figure.
    """

    what: str
    workload: str
    case: str
    client: str
    published: str
    reach: str
    hope: str
    measured: Callable[[Case, Row], str | None]
    server: str = BARNABAS
    is_in_summary: bool = False


def rate(case: Case, row: Row) -> str | None:
    """Return the throughput."""
    del case
    return f"{row.records_per_s:,.0f}/s" if row.records_per_s else None


def overhead(case: Case, row: Row) -> str | None:
    """Return the number of stored bytes per record in addition to the payload."""
    del case
    stored = row.median(lambda run: run.stored)
    return None if stored is None else f"{stored:.2f} B"


def latency(case: Case, row: Row) -> str | None:
    """Return the latency percentiles, each as the median over the runs."""
    del case
    found = [row.median(lambda run, name=name: run.latency.get(name)) for name in ("p50_ms", "p99_ms", "p999_ms")]  # type: ignore[misc]
    return " / ".join(f"{value:.2f}" for value in found if value is not None) + " ms" if any(found) else None


def flatness(case: Case, row: Row) -> str | None:
    """Return the ratio of two throughputs: while the last quarter of the data is stored, and during the first
    gigabyte."""
    del case
    last_gb = max((run.stored_gb or 0 for run in row.runs), default=0)
    first = [run.records_per_s for run in row.runs if (run.stored_gb or 0) < SMALL_GB]
    last = [run.records_per_s for run in row.runs if (run.stored_gb or 0) >= last_gb * LAST_SHARE]
    if not first or not last or last_gb < SMALL_GB:
        return None
    return f"{(sum(last) / len(last)) / (sum(first) / len(first)):.2f} at {last_gb:.0f} GB"


def memory(case: Case, row: Row) -> str | None:
    """Return the highest memory peak of Barnabas over all clients of the case."""
    del row
    peaks = [run.memory_server_mib for each in case.rows if each.server == BARNABAS for run in each.runs]
    return f"{max(peaks):.0f} MiB" if peaks else None


def broker_cpu(case: Case, row: Row) -> str | None:
    """Return the broker's CPU time per million records, and its ratio to Apache Kafka's with the same client."""
    kafka = case.row(KAFKA, row.client)
    own, theirs = server_cpu_per_million(row), server_cpu_per_million(kafka) if kafka else None
    return f"{own:.2f} s, {own / theirs:.2f} of Kafka's" if own is not None and theirs else None


def against_same_client(case: Case, row: Row) -> str | None:
    """Return the throughput, and its ratio to Apache Kafka's with the same client."""
    ratio = _ratio(row, case.row(KAFKA, row.client))
    return f"{row.records_per_s:,.0f}/s, {ratio:.2f} x Kafka's" if ratio else None


def against_one_broker(case: Case, row: Row) -> str | None:
    """Return the throughput with replicas, and its ratio to one broker without replicas."""
    ratio = _ratio(row, case.row(BARNABAS, row.client))
    return f"{ratio:.2f} of one broker's: {row.records_per_s:,.0f}/s" if ratio else None


def latency_beside_kafka(case: Case, row: Row) -> str | None:
    """Return the latency percentiles, and the percentiles of Apache Kafka with its own client."""
    kafka = case.row(KAFKA_CLUSTER, KAFKA_CLIENTS[1])
    own, theirs = latency(case, row), latency(case, kafka) if kafka else None
    return f"{own}, Kafka {theirs}" if own and theirs else own


def against_sparks_source(case: Case, row: Row) -> str | None:
    """Return the throughput, and its ratio to Spark's own Kafka source with the same broker."""
    ratio = _ratio(row, case.row(row.server, SPARKS_SOURCE))
    return f"{ratio:.2f} x Spark's: {row.records_per_s:,.0f}/s" if ratio else None


def took(case: Case, row: Row) -> str | None:
    """Return the median duration in seconds."""
    del case
    seconds = row.median(lambda run: run.seconds)
    return None if seconds is None else f"{seconds:.2f} s"


def server_cpu_per_million(row: Row) -> float | None:
    """Return the CPU seconds of the server per million records; None without a measurement."""
    return row.median(lambda run: run.cpu_server_s / run.records * 1e6 if run.records else None)


def client_cpu_per_million(row: Row) -> float | None:
    """Return the CPU seconds of the client per million records; None without a measurement."""
    return row.median(lambda run: run.cpu_client_s / run.records * 1e6 if run.records else None)


def against_confluent(case: Case, row: Row) -> float | None:
    """Return the throughput relative to confluent-kafka with the same broker, or otherwise with Barnabas."""
    reference = case.row(row.server, CONFLUENT) or case.row(BARNABAS, CONFLUENT)
    return _ratio(row, reference)


def against_kafka(case: Case, row: Row) -> float | None:
    """Return the ratio to the throughput of Apache Kafka with the faster of its own two clients."""
    peer = KAFKA_CLUSTER if row.server in (BARNABAS_CLUSTER, KAFKA_CLUSTER) else KAFKA
    rows = [found for client in KAFKA_CLIENTS if (found := case.row(peer, client))]
    return _ratio(row, max(rows, key=lambda each: each.records_per_s or 0.0, default=None))


def _ratio(row: Row, reference: Row | None) -> float | None:
    if not row.records_per_s or not reference or not reference.records_per_s:
        return None
    return row.records_per_s / reference.records_per_s


GOALS = (
    Goal("W4 one producer, `send` per record", "W4", "one producer", "Barnabas `send`", "821,557/s",
         "3 M/s, 2 x confluent-kafka", "5 M/s", rate, is_in_summary=True),
    Goal("the same, `send_many`", "W4", "one producer", "Barnabas `send_many`", "821,557/s", "5 M/s", "10 M/s", rate),
    Goal("the same, `send_arrow`", "W4", "one producer", "Barnabas `send_arrow`", "821,557/s", "5 M/s", "10 M/s", rate),
    Goal("W5 one producer, 3 replicas, acks=1", "W5", "three replicas", "Barnabas `send`", "786,980/s",
         "0.6 of W4, 2 x Kafka", "0.8 of W4", against_one_broker, BARNABAS_CLUSTER),
    Goal("W6 the same, acks=all", "W6", "three replicas", "Barnabas `send`", "421,823/s",
         "0.45 of W4, 2 x Kafka", "0.6 of W4", against_one_broker, BARNABAS_CLUSTER),
    Goal("W7 three producers, 3 replicas, acks=1", "W7", "three replicas", "Barnabas `send`", "2,024,032/s",
         "0.5 of W4, 2 x Kafka", "W4", against_one_broker, BARNABAS_CLUSTER),
    Goal("W8 one consumer, iterating records", "W8", "one consumer", "Barnabas, records", "940,521/s",
         "3 M/s, 2 x confluent-kafka", "5 M/s", rate, is_in_summary=True),
    Goal("the same, Arrow", "W8", "one consumer", "Barnabas, Arrow", "940,521/s", "10 M/s", "20 M/s", rate),
    Goal("W1 batch of 1, pipelined, acks=0", "W1", "batch of 1", "Barnabas, pipelined requests", "50,000/s",
         "100,000/s", "250,000/s", rate),
    Goal("W1 batch of 50", "W1", "batch of 50", "Barnabas, pipelined requests", "400,000/s", "2 M/s", "4 M/s", rate),
    Goal("W1A batch of 1, pipelined, acks=all", "W1A", "batch of 1", "Barnabas, pipelined requests", "",
         "2 x Kafka with this client", "", against_same_client),
    Goal("W1A batch of 50", "W1A", "batch of 50", "Barnabas, pipelined requests", "", "2 x Kafka with this client", "",
         against_same_client),
    Goal("W2 one consumer, fetches of 200 KB", "W2", "one consumer", "Barnabas, records", "22,000/s",
         "1 M/s", "3 M/s", rate),
    Goal("W3 bytes a message beyond the payload", "W3", "bytes beyond the payload", "Barnabas, pipelined requests",
         "9 B", "≤ 10.5", "", overhead),
    Goal("W9 producer and consumer together", "W9", "producer and consumer", "Barnabas", "795,064/s",
         "1.5 M/s", "2.5 M/s", rate, is_in_summary=True),
    Goal("W11 throughput with much stored against little", "W11", "stored data", "Barnabas `send_many`", "flat",
         "≥ 0.95 at 20 GB", "", flatness),
    Goal("W12 latency at 10,000/s, p50 / p99 / p99.9", "W12", "10,000 records/s", "Barnabas", "2 / 3 / 14 ms",
         "1 / 3 / 14 ms", "0.3 / 1 / 5 ms", latency, is_in_summary=True),
    Goal("latency at 1,000/s, acks=all, 3 replicas, p50 / p99 / p99.9", "W12R", "1,000 records/s", "Barnabas", "",
         "p99 ≤ Kafka's", "half", latency_beside_kafka, BARNABAS_CLUSTER),
    Goal("broker's CPU a million records, W4 with confluent-kafka", "W4", "one producer", CONFLUENT, "",
         "less than Kafka's", "half", broker_cpu),
    Goal("broker's memory under W4, at most", "W4", "one producer", "Barnabas `send`", "", "≤ 100 MB", "60 MB", memory,
         is_in_summary=True),
    Goal("broker's memory under W9, at most", "W9", "producer and consumer", "Barnabas", "", "≤ 100 MB", "60 MB",
         memory),
    Goal("W20 acknowledged after a flush, 1 KiB, 4 producers", "W20", "a flush before each acknowledgement",
         "Barnabas `send`", "", "2 x Kafka with this client", "", against_same_client),
    Goal("W13 Spark reads the topic, two cores", "W13", "count and sum of lengths", SPARK, "",
         "4 x Spark's own source", "6 x", against_sparks_source, is_in_summary=True),
    Goal("the first query of a session", "W13", "the first query of a session", SPARK, "", "1 x Spark's own source",
         "2 x", against_sparks_source),
    Goal("a stream of the topic into Parquet files", "W13", "a stream of the whole topic into Parquet files", SPARK, "",
         "3 x Spark's own source", "5 x", against_sparks_source),
    Goal("load raw", "W13", "load into the warehouse", LOADER, "", "1.5 M/s", "2.5 M/s", rate, is_in_summary=True),
    Goal("load of JSON, 10 fields", "W13", "load of JSON with 10 fields into columns", LOADER, "", "400,000/s", "1 M/s",
         rate),
    Goal("load of Avro, 10 fields", "W13", "load of Avro with 10 fields into columns", LOADER, "", "800,000/s", "1 M/s",
         rate),
    Goal("load without new records", "W13", "load without new records", LOADER, "", "3 s", "1 s", took),
)  # fmt: skip
