"""Generate the dashboards in docs/grafana/: `python tools/dashboards.py`. A test compares the files with the
declarations in this module.

Each panel has a title, a Grafana unit, and PromQL expressions with the legends of their series.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "docs" / "grafana"
WIDTH, HEIGHT, PER_ROW = 8, 7, 3
BROKER = 'instance=~"$broker"'
RATE = "[$__rate_interval]"


class Panel(NamedTuple):
    """A chart of one or more expressions, or a single number if `is_number`."""

    title: str
    expressions: Mapping[str, str]
    """The PromQL expressions by legend."""
    unit: str = "short"
    is_number: bool = False


def rate(metric: str, by: str, condition: str = BROKER) -> str:
    """Return the PromQL expression of a counter's rate, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{condition}}}{RATE}))"


def quantile(share: float, metric: str, by: str) -> str:
    """Return the PromQL expression of a histogram's quantile."""
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{BROKER}}}{RATE})))"


def total(metric: str, by: str, condition: str = BROKER) -> str:
    """Return the PromQL expression of a gauge's sum by labels."""
    return f"sum by ({by}) ({metric}{{{condition}}})"


TOPICS = "kafka_server_brokertopicmetrics"
REPLICAS = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
REQUESTS = "kafka_network_requestmetrics"
OF_TOPIC = 'topic=~"$topic"'
OF_GROUP = 'consumergroup=~"$group"'

BROKERS = (
    Panel("Live brokers", {"brokers": "max(kafka_brokers)"}, is_number=True),
    Panel("Partitions without a leader", {"offline": f"sum({CONTROLLER}_offlinepartitionscount)"}, is_number=True),
    Panel(
        "Under-replicated partitions",
        {"under-replicated": f"sum({REPLICAS}_underreplicatedpartitions)"},
        is_number=True,
    ),
    Panel("Bytes in", {"{{instance}}": rate(f"{TOPICS}_bytesin_total", "instance")}, "Bps"),
    Panel("Bytes out", {"{{instance}}": rate(f"{TOPICS}_bytesout_total", "instance")}, "Bps"),
    Panel(
        "Bytes replicated",
        {
            "{{instance}} in": rate(f"{TOPICS}_replicationbytesin_total", "instance"),
            "{{instance}} out": rate(f"{TOPICS}_replicationbytesout_total", "instance"),
        },
        "Bps",
    ),
    Panel("Records in, by topic", {"{{topic}}": rate(f"{TOPICS}_messagesin_total", "topic")}, "cps"),
    Panel("Requests", {"{{request}}": rate(f"{REQUESTS}_requests_total", "request")}, "reqps"),
    Panel("Request bytes", {"{{request}}": rate("barnabas_request_bytes_total", "request")}, "Bps"),
    Panel("Response bytes", {"{{request}}": rate("barnabas_response_bytes_total", "request")}, "Bps"),
    Panel("Request time, 99 %", {"{{request}}": quantile(0.99, f"{REQUESTS}_totaltimems", "request")}, "ms"),
    Panel(
        "Responses with errors",
        {"{{request}} {{error}}": rate(f"{REQUESTS}_errors_total", "request, error", f'error!="NONE", {BROKER}')},
        "reqps",
    ),
    Panel(
        "Waiting requests",
        {"{{delayedOperation}}": total("kafka_server_delayedoperationpurgatory_purgatorysize", "delayedOperation")},
    ),
    Panel(
        "Connections",
        {
            "{{instance}} {{listener}}": total(
                "kafka_server_socket_server_metrics_connection_count", "instance, listener"
            )
        },
    ),
    Panel("Requests by client", {"{{client_id}}": f"topk(10, {rate('barnabas_client_requests_total', 'client_id')})"}),
    Panel("Partitions led", {"{{instance}}": total(f"{REPLICAS}_leadercount", "instance")}),
    Panel(
        "In-sync replicas",
        {
            "{{instance}} shrinks": rate(f"{REPLICAS}_isrshrinks_total", "instance"),
            "{{instance}} expands": rate(f"{REPLICAS}_isrexpands_total", "instance"),
        },
    ),
    Panel("Leader elections", {"{{instance}}": rate("barnabas_leader_elections_total", "instance")}),
    Panel("Followers behind", {"{{instance}}": total("barnabas_replica_lag_max", "instance")}),
    Panel("Event loop lag, 99 %", {"{{instance}}": quantile(0.99, "barnabas_event_loop_lag_seconds", "instance")}, "s"),
    Panel(
        "fsync, 99 %",
        {"{{instance}}": quantile(0.99, "kafka_log_logflushstats_logflushrateandtimems", "instance")},
        "ms",
    ),
    Panel("Logs, by topic", {"{{topic}}": total("kafka_log_log_size", "topic")}, "bytes"),
    Panel("CPU", {"{{instance}}": rate("process_cpu_seconds_total", "instance")}, "percentunit"),
    Panel("Memory", {"{{instance}}": total("process_resident_memory_bytes", "instance")}, "bytes"),
    Panel("Open files", {"{{instance}}": total("process_open_fds", "instance")}),
)

GROUPS = (
    Panel("Lag", {"{{consumergroup}}": total("kafka_consumergroup_lag", "consumergroup", OF_GROUP)}),
    Panel(
        "Lag in seconds",
        {"{{consumergroup}}": f"max by (consumergroup) (barnabas_consumergroup_lag_seconds{{{OF_GROUP}}})"},
        "s",
    ),
    Panel("Members", {"{{consumergroup}}": total("kafka_consumergroup_members", "consumergroup", OF_GROUP)}),
    Panel(
        "Lag by topic",
        {"{{consumergroup}} {{topic}}": total("kafka_consumergroup_lag_sum", "consumergroup, topic", OF_GROUP)},
    ),
    Panel(
        "Committed records",
        {
            "{{consumergroup}} {{topic}}": "sum by (consumergroup, topic) "
            f"(rate(kafka_consumergroup_current_offset{{{OF_GROUP}}}{RATE}))"
        },
        "cps",
    ),
    Panel("Records in", {"{{topic}}": rate("kafka_topic_partition_current_offset", "topic", OF_TOPIC)}, "cps"),
    Panel(
        "Records kept",
        {
            "{{topic}}": f"sum by (topic) (kafka_topic_partition_current_offset{{{OF_TOPIC}}}"
            f" - kafka_topic_partition_oldest_offset{{{OF_TOPIC}}})"
        },
    ),
    Panel("Groups", {"{{instance}}": "kafka_coordinator_group_groupmetadatamanager_numgroups"}),
    Panel("Groups that rebalance", {
        "{{instance}}": "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance"
        " + kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance"
    }),
)  # fmt: skip

PIPELINE = (
    Panel("Mirror lag", {"{{topic}}": total("barnabas_mirror_lag", "topic", "")}),
    Panel("Mirror lag in seconds", {"{{topic}}": "max by (topic) (barnabas_mirror_lag_seconds)"}, "s"),
    Panel("Mirrored bytes", {"{{topic}}": rate("barnabas_mirror_bytes_total", "topic", "")}, "Bps"),
    Panel("Stopped partitions of mirrors", {"{{topic}}": total("barnabas_mirror_stopped", "topic", "")}),
    Panel("Loaded records", {"{{table}}": rate("barnabas_load_records_total", "table", "")}, "cps"),
    Panel("Bad records", {"{{table}}": rate("barnabas_load_bad_records_total", "table", "")}, "cps"),
    Panel("Last successful load", {"{{instance}}": "time() - barnabas_load_last_success_timestamp_seconds"}, "s"),
    Panel("Audited windows", {"{{topic}} {{status}}": total("barnabas_audit_windows", "topic, status", "")}),
    Panel(
        "Lost and doubled records",
        {"{{topic}} {{tier}} {{kind}}": total("barnabas_audit_findings", "topic, tier, kind", 'kind!="open"')},
    ),
    Panel("Answers of registries", {"{{status}}": rate("barnabas_registry_answers_total", "status", "")}, "reqps"),
    Panel("Subjects of registries", {"{{instance}}": "barnabas_registry_subjects"}),
)

VARIABLES = {
    "broker": "label_values(kafka_server_replicamanager_partitioncount, instance)",
    "topic": "label_values(kafka_topic_partitions, topic)",
    "group": "label_values(kafka_consumergroup_members, consumergroup)",
}
"""For each dashboard variable, the query that lists its values."""

DASHBOARDS: Mapping[str, tuple[str, Sequence[Panel], Sequence[str]]] = {
    "brokers": ("Barnabas: brokers", BROKERS, ["broker"]),
    "groups": ("Barnabas: groups and topics", GROUPS, ["group", "topic"]),
    "pipeline": ("Barnabas: mirrors, loads, audits and registries", PIPELINE, []),
}
"""The title, the panels and the variables of each dashboard, by file name."""

SOURCE = {"type": "prometheus", "uid": "${source}"}


def dashboard(name: str) -> str:
    """Return the JSON of a dashboard."""
    title, panels, variables = DASHBOARDS[name]
    found = {
        "title": title,
        "uid": f"barnabas-{name}",
        "schemaVersion": 39,
        "tags": ["barnabas"],
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
                *(_variable(each) for each in variables),
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(found, indent=1) + "\n"


def _variable(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": VARIABLES[name], "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for place, (legend, expression) in enumerate(panel.expressions.items())
    ]
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "stat" if panel.is_number else "timeseries",
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": number % PER_ROW * WIDTH, "y": number // PER_ROW * HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


def main() -> int:
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(dashboard(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
