"""A mirror into a cluster whose leaders die while it works."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import barnabas
from tests.cluster import Cluster
from tests.conftest import BrokerProcess
from tests.interop.reading import wait_until
from tests.interop.test_mirror import send
from tests.mirror_process import MirrorProcess, stored

SETTINGS: dict[str, str] = {}
ROUNDS = 2
PLACES = [("led", partition) for partition in range(3)]


def test_leaders_of_the_target_die_and_nothing_is_lost_or_doubled(
    broker: BrokerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("led", 3)
    sent = 2_000
    send(broker.bootstrap, "led", 0, sent, 3)
    mirror = MirrorProcess(broker.bootstrap, cluster.bootstrap, tmp_path / "mirror.log", "--topics", "led")
    try:
        with barnabas.Admin(cluster.bootstrap) as there:
            wait_until(lambda: "led" in there.list_topics(), mirror.log.read_text)
            for _ in range(ROUNDS):
                wait_until(partial(_has, there, sent), mirror.log.read_text)
                killed = cluster.leader_of("led")
                send(broker.bootstrap, "led", sent, 20_000, 3)
                sent += 20_000
                cluster.brokers[killed].kill()
                wait_until(partial(_has, there, sent), mirror.log.read_text)
                cluster.brokers[killed].restart()
                cluster.wait_until_in_sync("led", 3)
        assert mirror.stop() == 0, mirror.log.read_text()
    finally:
        mirror.close()
    assert stored(broker.bootstrap, "led") == stored(cluster.bootstrap, "led")


def _has(admin: barnabas.Admin, count: int) -> bool:
    return sum(admin.end_offsets(PLACES).values()) >= count
