"""Partitions that move slowly, between three brokers: how many bytes come in which time, and that nobody else waits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.main import main
from barnabas.cli.reassignment_throttle import FOLLOWERS as FOLLOWERS_LIST
from barnabas.cli.reassignment_throttle import LEADERS as LEADERS_LIST
from barnabas.clock import SYSTEM_CLOCK
from barnabas.replication.quota import BURST_S
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(600)]

SETTINGS = {"replica_fetch_max_bytes": "65536", "replica_fetch_response_max_bytes": "131072"}
RATE = 400_000
VALUE = bytes(range(256)) * 40
RECORDS = 200
ANSWER_BYTES_MAX = 131_072 + 65_536
LEADERS, FOLLOWERS = "leader.replication.throttled", "follower.replication.throttled"


def make(cluster: Cluster, topic: str, *replicas: int) -> int:
    """Make a topic with records, on these brokers; return how many bytes it has."""
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, 1, len(replicas))
        admin.alter_partition_reassignments({(topic, 0): replicas})
        wait_until(lambda: not admin.list_partition_reassignments(), f"{topic} is on {replicas}")
    with barnabas.Producer(cluster.bootstrap, acks="all", compression_type="none") as producer:
        for _ in range(RECORDS):
            producer.send(topic, VALUE, partition=0)
    return len(cluster.content(replicas[0], topic))


@pytest.fixture(params=[LEADERS, FOLLOWERS])
def side(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """Which side is slow; nobody is, afterwards."""
    yield request.param
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_config(all_brokers=True, to_unset=[f"{request.param}.rate"])


def throttle(cluster: Cluster, topic: str, side: str, rate: int) -> None:
    """Let all replicas of a topic be copied at this rate, and wait until all brokers know it."""
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_config(all_brokers=True, to_set={f"{side}.rate": str(rate)})
        admin.alter_config(topic, to_set={f"{side}.replicas": "*"})

    def is_known_to(number: int) -> bool:
        with barnabas.Admin(cluster.bootstrap_of(number)) as admin:
            told = admin.describe_config(broker=number)[f"{side}.rate"].value
            return (told, admin.describe_config(topic)[f"{side}.replicas"].value) == (str(rate), "*")

    wait_until(lambda: all(map(is_known_to, cluster.brokers)), "all brokers know the throttle")


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def test_move_takes_its_time_and_neither_clients_nor_replicas_in_sync_do(cluster: Cluster, side: str) -> None:
    topic = f"slow-{side.split('.', maxsplit=1)[0]}"
    size = make(cluster, topic, 1, 2)
    throttle(cluster, topic, side, RATE)
    with barnabas.Admin(cluster.bootstrap) as admin, barnabas.Producer(cluster.bootstrap, acks="all") as producer:
        copied = cluster.brokers[3].data / f"{topic}-0"
        begun_s = SYSTEM_CLOCK.monotonic()
        admin.alter_partition_reassignments({(topic, 0): [3, 2]})
        seen = [(begun_s, 0)]
        acknowledged = 0
        while admin.list_partition_reassignments():
            # Small ones, so that what is in sync takes little of the rate.
            producer.send(topic, b"small", partition=0).result()
            acknowledged += 1
            seen.append((SYSTEM_CLOCK.monotonic(), size_of(copied)))
    assert acknowledged > 1, "producers with acks=all went on"
    # In no window of time came more than the rate allows, and what is beyond it for a moment.
    ahead = [copied_bytes - RATE * at_s for at_s, copied_bytes in seen]
    most = max(now - before for before, now in zip(accumulate(ahead, min), ahead, strict=True))
    assert most <= RATE * BURST_S + 2 * ANSWER_BYTES_MAX
    assert seen[-1][0] - begun_s >= (size - 2 * ANSWER_BYTES_MAX) / RATE - BURST_S
    wait_until(lambda: len(cluster.content(3, topic)) >= size, "all is there")
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_config(topic, to_unset=[f"{side}.replicas"])


def test_move_that_would_never_end_goes_on_when_its_throttle_is_gone(cluster: Cluster, side: str) -> None:
    topic = f"stopped-{side.split('.', maxsplit=1)[0]}"
    size = make(cluster, topic, 1, 2)
    throttle(cluster, topic, side, 0)
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.alter_partition_reassignments({(topic, 0): [3, 2]})
        copied = cluster.brokers[3].data / f"{topic}-0"
        wait_until(copied.exists, "the new replica is made")
        wait_until(lambda: topic in str(admin.list_partition_reassignments()), "it is on its way")
        assert size_of(copied) < size
        admin.alter_config(topic, to_unset=[f"{side}.replicas"])
        wait_until(lambda: not admin.list_partition_reassignments(), "it has moved")


def test_command_moves_at_a_rate_and_leaves_nothing_of_it(cluster: Cluster) -> None:
    topic = "by-command"
    size = make(cluster, topic, 1, 2)
    begun_s = SYSTEM_CLOCK.monotonic()
    move = ["topic", "reassign", topic, "--partition", "0=3,2", "--throttle", str(RATE), "-y", "-b", cluster.bootstrap]
    assert main(move) == 0
    # Both sides hold back; what is beyond the rate for a moment is the followers' answers.
    assert SYSTEM_CLOCK.monotonic() - begun_s >= (size - 2 * ANSWER_BYTES_MAX) / RATE - BURST_S
    with barnabas.Admin(cluster.bootstrap) as admin:
        assert admin.describe_topics([topic])[0].partitions[0].replicas == (3, 2)

        def is_gone() -> bool:
            told = admin.describe_config(topic)
            return not (told[LEADERS_LIST].value or told[FOLLOWERS_LIST].value) and not [
                name for name in admin.describe_config(all_brokers=True) if "throttled" in name
            ]

        wait_until(is_gone, "nothing of the throttle is left, wherever it is asked")
