"""Compare the metrics of brokers with the metrics of three exporters for Kafka: kafka_exporter, kminion and Burrow.

    JAVA_HOME=$(tools/java_home.sh) .venv/bin/python tools/exporters_suite.py
    .venv/bin/python tools/exporters_suite.py --checkouts ~/src

Go builds the exporters from clones in the cache directory, or from the directories of the same names in `--checkouts`.
Three brokers have topics and a group with lag. During the comparison no client is active, so all programs must report
the same values.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from metrics_suite import BROKERS, System, running, say, wait_until
from prometheus_client.parser import text_string_to_metric_families
from published_tests import CACHE_FOLDER

import barnabas

GROUP = "readers"
PARTITIONS = {"clicks": 6, "single": 4}
RECORDS = 300
Series = dict[tuple[str, ...], float]
"""The values of series, by metric name and sorted labels (`name=value`)."""


@dataclass(frozen=True)
class Exporter:
    """An exporter that is built from source.

    :param source: the address of its repository.
    :param revision: the commit to build.
    """

    source: str
    revision: str


EXPORTERS = {
    "kafka_exporter": Exporter(
        "https://github.com/danielqsj/kafka_exporter", "953e2f1745b90101f331ad629f10be5239845f69"
    ),
    "kminion": Exporter("https://github.com/redpanda-data/kminion", "4f3867a4400b731feda1f17f2e96dea36158d2ab"),
    "Burrow": Exporter("https://github.com/linkedin/Burrow", "ced55ba90f6b833a45a124d411fd5eef63a70933"),
}

KMINION_NAMES = {
    "kminion_kafka_topic_partition_high_water_mark": "kafka_topic_partition_current_offset",
    "kminion_kafka_topic_partition_low_water_mark": "kafka_topic_partition_oldest_offset",
    "kminion_kafka_consumer_group_topic_partition_lag": "kafka_consumergroup_lag",
    "kminion_kafka_consumer_group_topic_lag": "kafka_consumergroup_lag_sum",
    "kminion_kafka_consumer_group_members": "kafka_consumergroup_members",
}
KMINION_LABELS = {"topic_name": "topic", "partition_id": "partition", "group_id": "consumergroup"}


def build(name: str, checkouts: Path | None) -> Path:
    """Build an exporter unless it is already built. Return the program."""
    exporter = EXPORTERS[name]
    checkout = CACHE_FOLDER / f"{name}-{exporter.revision[:10]}" if checkouts is None else checkouts / name
    if not checkout.exists():
        subprocess.run(["git", "clone", "--quiet", exporter.source, str(checkout)], check=True)
        subprocess.run(["git", "checkout", "--quiet", exporter.revision], cwd=checkout, check=True)
    program = checkout / "barnabas-suite"
    if not program.exists():
        subprocess.run(["go", "build", "-o", program.name, "."], cwd=checkout, check=True)
    return program


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def series_at(port: int) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the name, the labels and the value of each series that a process reports."""
    for family in text_string_to_metric_families(get(f"http://127.0.0.1:{port}/metrics")):
        for each in family.samples:
            yield each.name, each.labels, each.value


def key_of(name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    return (name, *sorted(f"{label}={value}" for label, value in labels.items()))


def ours(system: System) -> Series:
    """Return the series that all brokers report. No two brokers may report the same series."""
    found: Series = {}
    for number in BROKERS:
        for name, labels, value in series_at(system.ports[number][1]):
            if name.startswith(("kafka_topic_", "kafka_consumergroup_", "kafka_broker")):
                key = key_of(name, labels)
                assert key not in found, f"two brokers report {key}"
                found[key] = value
    return found


def of_kafka_exporter(port: int) -> Series:
    """Return the series of kafka_exporter. Values of -1, which mean that a partition has no committed offset, are
    omitted.
    """
    return {
        key_of(name, labels): value
        for name, labels, value in series_at(port)
        if name.startswith("kafka_") and not name.startswith("kafka_exporter_") and value >= 0
    }


def of_kminion(port: int) -> Series:
    """Return the series of kminion under the metric names of Barnabas."""
    return {
        key_of(KMINION_NAMES[name], {KMINION_LABELS[label]: text for label, text in labels.items()}): value
        for name, labels, value in series_at(port)
        if name in KMINION_NAMES
    }


def compare(name: str, known: Series, read: Callable[[], Series]) -> None:
    """Wait until an exporter and the brokers report the same values for all series of the exporter."""
    found: Series = {}

    def is_same() -> bool:
        with contextlib.suppress(OSError):
            found.clear()
            found.update(read())
        names = {key[0] for key in found}
        return bool(found) and found == {key: value for key, value in known.items() if key[0] in names}

    def differences() -> str:
        names = {key[0] for key in found}
        wrong = [
            f"{key}: {name} has {found.get(key)}, the brokers have {known.get(key)}"
            for key in sorted({*found, *(key for key in known if key[0] in names)})
            if found.get(key) != known.get(key)
        ]
        return "\n".join(wrong) or f"{name} shows nothing"

    wait_until(is_same, differences)
    say(f"{name} shows the same {len(found)} values of {len({key[0] for key in found})} metrics")


def compare_burrow(port: int, known: Series) -> None:
    """Wait until Burrow and the brokers report the same lag of the group."""
    lag = sum(value for key, value in known.items() if key[0] == "kafka_consumergroup_lag")
    seen = "nothing"

    def is_same() -> bool:
        nonlocal seen
        with contextlib.suppress(OSError):
            seen = get(f"http://127.0.0.1:{port}/v3/kafka/local/consumer/{GROUP}/lag")
            return bool(json.loads(seen)["status"]["totallag"] == lag)
        return False

    wait_until(is_same, lambda: f"Burrow shows {seen}, the brokers a lag of {lag:g}")
    say(f"Burrow shows the same lag: {lag:g}")


def prepare(system: System) -> None:
    """Create topics, records and a group with lag. No client is active afterwards."""
    with barnabas.Admin(system.bootstrap) as admin:
        admin.create_topic("clicks", PARTITIONS["clicks"])
        admin.create_topic("single", PARTITIONS["single"], replication_factor=1)
    _produce(system)
    with barnabas.Consumer(system.bootstrap, group=GROUP, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["clicks", "single"])
        read: set[tuple[str, int]] = set()
        while len(read) < sum(PARTITIONS.values()):
            read.update((record.topic, record.partition) for record in consumer.poll())
        consumer.commit()
    _produce(system)


def _produce(system: System) -> None:
    """Append records to each partition."""
    with barnabas.Producer(system.bootstrap) as producer:
        for topic, count in PARTITIONS.items():
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number, partition=number % count)


def burrow_config(system: System, port: int) -> str:
    """Return the configuration of Burrow."""
    servers = json.dumps(system.bootstrap.split(","))
    return f"""
[zookeeper]
servers=["{system.zookeeper}"]
[client-profile.local]
kafka-version="2.0.0"
[cluster.local]
class-name="kafka"
client-profile="local"
servers={servers}
topic-refresh=5
offset-refresh=1
[consumer.local]
class-name="kafka"
cluster="local"
client-profile="local"
servers={servers}
start-latest=false
[httpserver.default]
address="127.0.0.1:{port}"
"""


def main() -> int:
    """Build the exporters, start the brokers and compare the metrics."""
    parser = argparse.ArgumentParser(description="Compare the metrics of brokers with those of exporters for Kafka.")
    parser.add_argument("--checkouts", type=Path, help="a folder with clones; default: clones in the cache folder")
    given = parser.parse_args()
    programs = {name: build(name, given.checkouts) for name in EXPORTERS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        system = System(folder, stack)
        system.start_brokers()
        prepare(system)
        free_port: Callable[[], int] = importlib.import_module("tests.support.ports").free_port
        ports = {each: free_port() for each in EXPORTERS}
        known: Series = {}
        wait_until(lambda: known.update(ours(system)) or _has_lag(known), lambda: f"no lag of {GROUP}")
        exporter = [str(programs["kafka_exporter"]), f"--web.listen-address=127.0.0.1:{ports['kafka_exporter']}"]
        exporter += [f"--kafka.server={each}" for each in system.bootstrap.split(",")]
        stack.enter_context(running(exporter, folder / "kafka_exporter.log"))
        compare("kafka_exporter", known, lambda: of_kafka_exporter(ports["kafka_exporter"]))
        settings = {"KAFKA_BROKERS": system.bootstrap, "EXPORTER_PORT": str(ports["kminion"])}
        stack.enter_context(running([str(programs["kminion"])], folder / "kminion.log", environment=settings))
        # omit internal topics, because kminion does not report them
        others = {key: value for key, value in known.items() if "topic=__consumer_offsets" not in key}
        compare("kminion", others, lambda: of_kminion(ports["kminion"]))
        config = folder / "burrow"
        config.mkdir()
        (config / "burrow.toml").write_text(burrow_config(system, ports["Burrow"]))
        burrow = [str(programs["Burrow"]), "--config-dir", str(config)]
        stack.enter_context(running(burrow, folder / "burrow.log"))
        compare_burrow(ports["Burrow"], known)
    return 0


def _has_lag(known: Series) -> bool:
    """Return whether the brokers report the group's lag for all partitions."""
    lags = [value for key, value in known.items() if key[0] == "kafka_consumergroup_lag"]
    return len(lags) == sum(PARTITIONS.values()) and min(lags) > 0


if __name__ == "__main__":
    sys.exit(main())
