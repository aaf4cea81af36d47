"""Metrics and health of a broker process, over HTTP."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

import barnabas
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.reading import POLL_S, TIMEOUT_S, wait_until


class WatchedBroker(BrokerProcess):
    """A broker that serves its metrics and its health."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.http_port = free_port()

    @property
    def arguments(self) -> Sequence[str]:
        return ("--http", str(self.http_port))

    def get(self, page: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/{page}", timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def series(self) -> dict[tuple[str, ...], float]:
        """Return the metrics by name and label values."""
        families = text_string_to_metric_families(self.get("metrics")[1])
        return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedBroker]:
    broker = WatchedBroker(tmp_path / "broker")
    broker.start()
    yield broker
    broker.close()


def test_broker_reports_traffic_lag_and_health_and_stops_with_readers_at_its_pages(watched: WatchedBroker) -> None:
    assert watched.get("healthz") == (200, "ok\n")
    with barnabas.Admin(watched.bootstrap) as admin:
        admin.create_topic("clicks", 1)
    with barnabas.Producer(watched.bootstrap) as producer:
        for number in range(100):
            producer.send("clicks", b"%d" % number)
    with barnabas.Consumer(watched.bootstrap, group="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["clicks"])
        wait_until(lambda: consumer.poll(timeout_s=POLL_S), "records")
        consumer.commit()
    wait_until(lambda: watched.get("readyz") == (200, "ok\n"), "ready")
    wait_until(lambda: ("kafka_consumergroup_lag", "readers", "0", "clicks") in watched.series(), "lag")
    series = watched.series()
    assert series["kafka_topic_partition_current_offset", "0", "clicks"] == 100
    assert series["kafka_server_brokertopicmetrics_messagesin_total", "clicks"] == 100
    assert series["kafka_network_requestmetrics_totaltimems_count", "Produce"] > 0
    assert series["process_cpu_seconds_total",] > 0
    assert watched.stop() == 0


def test_address_in_use_ends_the_start(watched: WatchedBroker, tmp_path: Path) -> None:
    second = WatchedBroker(tmp_path / "second")
    second.http_port = watched.http_port
    with pytest.raises(AssertionError, match="choose another address with --http"):
        second.start()
