"""An ensemble whose leader is killed or stopped has another one soon, and sessions end when a test wants it."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from barnabas.coordination.zookeeper.session import SessionLostError
from tests.faults.ensemble import Ensemble
from tests.support.reading import wait_until
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import Sessions, new_chroot, sessions

pytestmark = pytest.mark.xdist_group(ZOOKEEPER)

EVENT_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    made = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def ensemble(servers: Ensemble) -> Ensemble:
    """All three servers, at work."""
    servers.heal()
    return servers


@pytest.fixture
def opened(ensemble: Ensemble) -> Iterator[Sessions]:
    with sessions(ensemble.address + new_chroot()) as opened:
        yield opened


def test_leader_that_is_killed_or_stopped_is_followed_by_another(ensemble: Ensemble, opened: Sessions) -> None:
    tree = opened.open()
    tree.create("/mine", ephemeral=True)
    for lose, left in ((ensemble.kill_leader, 2), (ensemble.pause_leader, 2)):
        before = lose()
        after = ensemble.leader()
        assert after != before
        tree.ping(EVENT_TIMEOUT_S)
        wait_until(lambda: all(ensemble.mode(each) == "follower" for each in ensemble.followers()), "the rest follow")
        assert len(ensemble.followers()) == left - 1
        ensemble.heal()
        assert len(ensemble.followers()) == 2
    assert tree.exists("/mine").owner == tree.session_id


def test_session_outlives_all_servers_that_are_down_and_up_again(ensemble: Ensemble, opened: Sessions) -> None:
    tree = opened.open()
    tree.create("/mine", ephemeral=True)
    ensemble.down()
    assert ensemble.servers.pids == [None] * 3
    ensemble.heal()
    tree.ping(EVENT_TIMEOUT_S)
    assert tree.exists("/mine").owner == tree.session_id


def test_all_sessions_that_own_something_are_expired_and_no_others(ensemble: Ensemble, opened: Sessions) -> None:
    owners, other = [opened.open(), opened.open()], opened.open()
    ends: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number, each in enumerate(owners):
        each.create(f"/{number}", ephemeral=True)
        each.on_session_end(lambda number=number: ends.put(number))
    chroot = "/" + opened.connect.partition("/")[2]
    assert ensemble.expire_all(chroot) == {each.session_id for each in owners}
    assert {ends.get(timeout=EVENT_TIMEOUT_S) for _ in owners} == {0, 1}
    with pytest.raises(SessionLostError):
        owners[0].get("/")
    assert other.children("/") == []
    assert ensemble.sessions(chroot) == set()
