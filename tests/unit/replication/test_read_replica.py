"""Which replica a consumer is sent to (KIP-392)."""

from __future__ import annotations

import pytest

from barnabas.replication.in_sync import RemoteReplicas
from barnabas.replication.read_replica import read_replica

RACKS = {1: "a", 2: "b", 3: "b", 4: "b", 5: None}


@pytest.fixture
def replicas() -> RemoteReplicas:
    """Broker 1 leads; 2 has 8 records, 3 has 9, 4 has all 10 but is not in sync yet, 5 has all 10."""
    replicas = RemoteReplicas(1, 0, (1, 2, 3, 4, 5), (1, 2, 3, 5), 0, 0, 0.0)
    for follower, end in ((2, 8), (3, 9), (4, 10), (5, 10)):
        replicas.on_fetch(follower, end, 10, 0.1)
    return replicas


@pytest.mark.parametrize(
    ("rack", "fetch_offset", "broker_id"),
    [
        pytest.param("", 0, 1, id="the consumer tells no rack"),
        pytest.param("a", 0, 1, id="the leader is in its rack"),
        pytest.param("b", 0, 3, id="of two in its rack the one that has more"),
        pytest.param("b", 9, 3, id="that is just there"),
        pytest.param("b", 10, 1, id="none in its rack is there yet"),
        pytest.param("c", 0, 1, id="none is in its rack"),
    ],
)
def test_reader_is_sent_to(replicas, rack, fetch_offset, broker_id) -> None:
    assert read_replica(replicas, 1, rack, fetch_offset, RACKS) == broker_id


def test_broker_that_is_gone_is_not_read_from(replicas) -> None:
    assert read_replica(replicas, 1, "b", 0, {1: "a", 2: "b"}) == 2
