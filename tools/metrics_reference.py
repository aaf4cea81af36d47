"""Generate docs/reference/metrics.md from the declarations of the metrics.

`python tools/metrics_reference.py` writes the page. Tests compare the page with the declarations and with the metrics
of a broker.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from barnabas.metrics.metric import Metric

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"

BROKER_SECTIONS = {
    "Topics, partitions and replicas": "barnabas.broker.metrics.partitions",
    "Consumer groups": "barnabas.broker.metrics.groups",
    "Requests and connections": "barnabas.broker.metrics.requests",
    "Leadership, storage and the event loop": "barnabas.broker.metrics.internals",
    "Clients that push their metrics": "barnabas.broker.client_telemetry",
}
"""The sections of the page with broker metrics, and the modules that declare these metrics."""

OTHER_SECTIONS = {
    "Mirrors": "barnabas.mirror.metrics",
    "Loads": "barnabas.cli.load_rounds",
    "Audits": "barnabas.cli.audit_metrics",
    "Schema registries": "barnabas.registry.main",
}

PROCESS = {
    "process_cpu_seconds_total": "CPU time of the process, in user and in system mode.",
    "process_max_fds": "The most files that the process may have open.",
    "process_open_fds": "Files that the process has open.",
    "process_resident_memory_bytes": "Memory of the process that is in RAM.",
    "process_start_time_seconds": "Start of the process, in seconds since 1970.",
    "process_virtual_memory_bytes": "Address space of the process.",
}
"""The metrics that prometheus_client reads from the operating system, with their meaning."""

HEAD = """\
# Metrics

With the option `--http [HOST:]PORT`, the commands `barnabas up`, `mirror`, `registry`, `load --every` and
`audit --watch` serve these metrics at `/metrics`, in the text format of Prometheus.
[operations.md](../how-to/operations.md#metrics-and-health) describes the pages and their costs.
`python tools/metrics_reference.py` generates this page from the declarations in the code.

If kafka_exporter or Strimzi's JMX exporter has a metric, Barnabas uses the same name, so that existing dashboards work.
All other names begin with `barnabas_`. Counters begin at zero at each start of the process. A histogram has the series
`_bucket`, `_count` and `_sum`.

The leader of a partition reports the metrics of the partition, and the coordinator of a group those of the group. The
broker with the lowest id acts as controller and reports cluster-wide metrics. A sum over all brokers therefore counts
nothing twice.

Clients push their own metrics to brokers (KIP-714), and each broker shows the metrics that it has received. The names
of Kafka's client metrics begin with `org_apache_kafka_`, all others with `client_`. The series have the labels
`client_id` and `client_instance_id`, in addition to the client's own labels.
"""


def metrics_of(module: str) -> Iterator[Metric]:
    """Yield the metrics that a module declares, in order."""
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, Metric):
            yield value
        elif isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, Metric))


def page() -> str:
    sections = [HEAD]
    for title, module in (BROKER_SECTIONS | OTHER_SECTIONS).items():
        rows = [(each.name, each.kind.value, ", ".join(each.labels), each.help) for each in metrics_of(module)]
        sections.append(_section(title, rows))
    rows = [(name, "counter" if name.endswith("_total") else "gauge", "", meaning) for name, meaning in PROCESS.items()]
    sections.append(_section("The process", rows))
    return "\n".join(sections)


def _section(title: str, rows: list[tuple[str, str, str, str]]) -> str:
    lines = [f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {labels} | {meaning} |" for name, kind, labels, meaning in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
