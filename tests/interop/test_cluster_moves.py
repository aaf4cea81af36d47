"""`barnabas cluster drain` and `balance` with three brokers, while records are written."""

from __future__ import annotations

import pytest

import barnabas
from barnabas.cli.main import main
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(600)]

SETTINGS = {"default_replication_factor": "2", "offsets_topic_replication_factor": "2"}
PARTITIONS = 6


def folders(cluster: Cluster, number: int) -> list[str]:
    """The logs that a broker holds."""
    return sorted(path.name for path in cluster.brokers[number].data.glob("*-?") if path.is_dir())


def send(cluster: Cluster) -> None:
    with barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        for partition in range(PARTITIONS):
            producer.send("clicks", b"%d" % partition, partition=partition).result()


def test_drained_broker_has_nothing_and_gets_its_share_again(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("clicks", PARTITIONS, 2)
    send(cluster)
    assert folders(cluster, 3)
    assert main(["cluster", "drain", "3", "-y", "--at-once", "4", "-b", cluster.bootstrap]) == 0
    wait_until(lambda: not folders(cluster, 3), lambda: f"broker 3 holds {folders(cluster, 3)}")
    send(cluster)
    assert main(["cluster", "balance", "-y", "-b", cluster.bootstrap]) == 0
    wait_until(
        lambda: [len(folders(cluster, each)) for each in cluster.brokers] == [PARTITIONS * 2 // 3] * 3,
        lambda: f"brokers hold {[folders(cluster, each) for each in cluster.brokers]}",
    )
    with barnabas.Admin(cluster.bootstrap) as admin:
        ends = admin.end_offsets(("clicks", number) for number in range(PARTITIONS))
    assert set(ends.values()) == {2}
    assert main(["cluster", "drain", "3", "-y", "-b", cluster.bootstrap_of(1)]) == 0
    assert main(["cluster", "drain", "2", "-y", "-b", cluster.bootstrap_of(1)]) == 0
    wait_until(lambda: not folders(cluster, 2), "it went to broker 3 again")
