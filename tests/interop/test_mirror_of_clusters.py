"""A mirror from a cluster of three brokers to another one, whose leaders die while it works."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import barnabas
from barnabas.errors import BarnabasError
from tests.interop.test_mirror import send
from tests.support.mirror_process import MirrorProcess, stored
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import FAULTS
from tests.support.zookeeper_servers import new_chroot

pytestmark = pytest.mark.xdist_group(FAULTS)

SETTINGS: dict[str, str] = {"min_insync_replicas": "2"}
PLACES = [("led", partition) for partition in range(3)]
AT_ONCE = 10_000


@pytest.fixture
def source(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Another cluster, in the same ZooKeeper."""
    made = Cluster(tmp_path, cluster.servers, new_chroot(), settings=SETTINGS)
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_leaders_of_source_and_target_die_and_nothing_is_lost_or_doubled(
    source: Cluster, cluster: Cluster, tmp_path: Path
) -> None:
    with barnabas.Admin(source.bootstrap) as admin:
        admin.create_topic("led", 3)
    source.wait_until_in_sync("led", 3)
    send(source.bootstrap, "led", 0, AT_ONCE, 3)
    sent = AT_ONCE
    mirror = MirrorProcess(source.bootstrap, cluster.bootstrap, tmp_path / "mirror.log", "--topics", "led")
    try:
        with barnabas.Admin(cluster.bootstrap) as there:
            for dies in (cluster, source):
                wait_until(partial(_has, there, sent), mirror.log.read_text)
                cluster.wait_until_in_sync("led", 3)
                killed = dies.leader_of("led")
                send(source.bootstrap, "led", sent, AT_ONCE, 3)
                dies.brokers[killed].kill()
                send(source.bootstrap, "led", sent + AT_ONCE, AT_ONCE, 3)
                sent += 2 * AT_ONCE
                wait_until(partial(_has, there, sent), mirror.log.read_text)
                dies.brokers[killed].restart()
                dies.wait_until_in_sync("led", 3)
        assert mirror.stop() == 0, mirror.log.read_text()
    finally:
        mirror.close()
    assert stored(source.bootstrap, "led") == stored(cluster.bootstrap, "led")


def _has(admin: barnabas.Admin, count: int) -> bool:
    try:
        return sum(admin.end_offsets(PLACES).values()) >= count
    except BarnabasError:  # it is not there yet, or nobody leads it
        return False
