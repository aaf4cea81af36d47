"""Three brokers with broken links: a leader that ZooKeeper does not hear, one whose followers do not; and all that die.

Whatever it is: what was acknowledged with acks=all is where it was acknowledged, no client is told that a log ends
earlier than another was told before, and the replicas are the same byte for byte when all is over.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Iterator

import pytest

import barnabas
from barnabas.coordination import paths
from barnabas.coordination.metadata_store import NoNodeError
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.errors import ErrorCode
from barnabas.model import NO_OFFSET, Acks
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.list_offsets import LATEST_TIMESTAMP
from tests.crash.test_broker_kill import PARTITIONS, Load, OurSender, check_all_is_there
from tests.interop.test_raw_frames import RawConnection, connection_to
from tests.support.broker_process import BrokerProcess
from tests.support.direct_clients import DirectReader, DirectSender, Told, values_by_offset
from tests.support.linked_cluster import LinkedCluster
from tests.support.links import Link
from tests.support.process_cluster import running_cluster
from tests.support.reading import wait_until
from tests.support.xdist_groups import FAULTS

pytestmark = pytest.mark.xdist_group(FAULTS)

SETTINGS = {
    "zookeeper_session_timeout_ms": "3000",
    "replica_lag_time_max_ms": "2000",
    # Who leads is what these tests decide.
    "auto_leader_rebalance_enable": "false",
}
FENCED = "stopping leadership of all partitions"
_numbers = itertools.count(1)

Break = Callable[[Link], None]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), SETTINGS, LinkedCluster) as made:
        yield made


@pytest.fixture
def cluster(brokers: LinkedCluster) -> LinkedCluster:
    """All three brokers, at work, with all their links."""
    brokers.heal()
    return brokers


def make_topic(cluster: LinkedCluster, name: str, partitions: int = 1, **settings: str) -> str:
    """Make a topic of three replicas, of which two must be in sync."""
    name = f"{name}-{next(_numbers)}"
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, partitions, 3, {"min.insync.replicas": "2", **settings})
    cluster.wait_until_in_sync(name, 3)
    return name


@pytest.fixture
def topic(cluster: LinkedCluster) -> str:
    """A topic of one partition."""
    return make_topic(cluster, "direct")


@pytest.fixture
def senders(cluster: LinkedCluster, topic: str) -> Iterator[dict[int, DirectSender]]:
    """By broker: one that sends to it alone, at acks=all."""
    with contextlib.ExitStack() as stack:
        yield {
            number: stack.enter_context(DirectSender(broker, topic, Acks.ALL, f"all-{number}"))
            for number, broker in cluster.brokers.items()
        }


@pytest.fixture(autouse=True)
def told(cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender]) -> Iterator[Told]:
    """What all brokers say all the time of where the topic ends; in the end, none has taken anything back."""
    told = Told(senders.values())
    with contextlib.ExitStack() as stack:
        for broker in cluster.brokers.values():
            stack.enter_context(DirectReader(broker, topic, LATEST_TIMESTAMP, told))
        yield told
        wait_until(lambda: told.greatest >= told.least(), "the last end is told")
    assert told.steps_back == []


@pytest.fixture
def load(cluster: LinkedCluster, caplog: pytest.LogCaptureFixture) -> Iterator[Load]:
    """A load that goes wherever the leaders are; in the end all that was sent is there once."""
    caplog.set_level(logging.INFO, "barnabas.client")  # a producer that begins a new epoch says why
    name = make_topic(cluster, "load", PARTITIONS)
    load = Load(OurSender(cluster.bootstrap, name))
    yield load
    load.stop()
    check_all_is_there(cluster.bootstrap, load, cluster.folder, name)


def check(
    cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender], first: int = 0
) -> dict[int, bytes | None]:
    """Check that all that was acknowledged, from an offset on, is where it was, and return what is there."""
    for sender in senders.values():
        sender.close()
    cluster.wait_until_same(topic)
    found = values_by_offset(cluster.bootstrap, topic)
    for sender in senders.values():
        wanted = {offset: value for offset, value in sender.acknowledged.items() if offset >= first}
        assert wanted.items() <= found.items()
    assert len(set(found.values())) == len(found)
    return found


@pytest.mark.parametrize("break_link", [Link.cut, Link.stall])
def test_leader_that_zookeeper_does_not_hear_leads_until_its_fence_and_another_from_then_on(
    cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender], load: Load, break_link: Break
) -> None:
    leader = cluster.leader_of(topic)
    log = cluster.brokers[leader].log
    fenced = log.read_text().count(FENCED)
    senders[leader].wait_for_progress()
    break_link(cluster.to_zookeeper[leader])
    wait_until(lambda: log.read_text().count(FENCED) > fenced, "the leader is fenced")
    senders[leader].wait_for_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    next_leader = cluster.wait_for_another_leader(topic, leader)
    senders[next_leader].wait_for_progress()
    senders[leader].wait_for_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.to_zookeeper[leader].mend()
    cluster.wait_until_in_sync(topic, 3)
    senders[next_leader].wait_for_progress()
    check(cluster, topic, senders)


def test_what_a_leader_took_that_only_clients_reach_is_truncated(
    cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender], load: Load
) -> None:
    leader = cluster.leader_of(topic)
    log = cluster.brokers[leader].log
    senders[leader].wait_for_progress()
    # In this order: where others take it out of sync first, nobody else could lead.
    cluster.to_zookeeper[leader].stall()
    cluster.to_listener[leader].stall()
    with DirectSender(cluster.brokers[leader], topic, Acks.LEADER, "one") as alone:
        senders[leader].wait_for_answer(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        acknowledged = len(senders[leader].acknowledged)
        alone.wait_for_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert alone.acknowledged
    next_leader = cluster.wait_for_another_leader(topic, leader)
    senders[next_leader].wait_for_progress()
    assert len(senders[leader].acknowledged) == acknowledged
    cluster.to_zookeeper[leader].mend()
    cluster.to_listener[leader].mend()
    cluster.wait_until_in_sync(topic, 3)
    found = check(cluster, topic, senders)
    assert set(alone.acknowledged.values()) - set(found.values())
    assert re.search(rf"truncated to match the leader's epochs: .*\b{topic}-0 to offset", log.read_text())


@pytest.mark.parametrize("break_link", [Link.cut, Link.stall])
def test_leader_that_its_followers_do_not_reach_is_in_sync_alone(
    cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender], load: Load, break_link: Break
) -> None:
    leader = cluster.leader_of(topic)
    senders[leader].wait_for_progress()
    before = len(senders[leader].answers)
    with DirectSender(cluster.brokers[leader], topic, Acks.LEADER, "one") as alone:
        break_link(cluster.to_listener[leader])
        wait_until(lambda: cluster.in_sync(topic) == {leader}, "the leader is in sync alone")
        senders[leader].wait_for_answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        answers = list(itertools.dropwhile(lambda each: each == ErrorCode.NONE, senders[leader].answers[before:]))
        alone.wait_for_progress()
        with barnabas.Admin(cluster.brokers[leader].bootstrap) as admin:
            end = alone.end
            assert list(admin.end_offsets([(topic, 0)]).values()) >= [end]
        cluster.to_listener[leader].mend()
        cluster.wait_until_in_sync(topic, 3)
        senders[leader].wait_for_progress()
    assert cluster.leader_of(topic) == leader
    found = check(cluster, topic, {**senders, 0: alone})
    # What waits when the others are given up is in the log, and yet not acknowledged.
    assert set(answers) <= {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
    assert found.keys() == set(range(len(found)))


def test_no_end_goes_back_when_all_are_killed_and_come_back_in_any_order(
    cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender]
) -> None:
    for order in itertools.permutations(cluster.brokers):
        senders[cluster.leader_of(topic)].wait_for_progress()
        kill_all(cluster)
        for number in order:
            cluster.brokers[number].restart()
        cluster.wait_until_in_sync(topic, 3)
    check(cluster, topic, senders)


def kill_all(cluster: LinkedCluster) -> None:
    """Kill all brokers, and have them forgotten at once, as when their sessions have ended."""
    for broker in cluster.brokers.values():
        broker.kill()
    tree = ZooKeeperMetadataStore(ZooKeeperConfig(cluster.zookeeper, session_timeout_s=60.0))
    try:
        for number in tree.children(paths.BROKER_IDS):
            with contextlib.suppress(NoNodeError):  # its session has ended meanwhile
                tree.delete(f"{paths.BROKER_IDS}/{number}")
    finally:
        tree.close()


def test_deletion_that_does_not_reach_the_followers_in_time_says_so_and_is_for_good_once_it_does(
    cluster: LinkedCluster, topic: str, senders: dict[int, DirectSender]
) -> None:
    leader = cluster.leader_of(topic)
    senders[leader].wait_for_progress(60)
    follower, other = cluster.others(leader)
    cluster.to_listener[leader].stall()
    with connection_to(cluster.brokers[leader]) as connection:
        assert delete(connection, topic, 50, timeout_ms=200) == (ErrorCode.REQUEST_TIMED_OUT, NO_OFFSET)
        cluster.to_listener[leader].mend()
        # It is done meanwhile, or waited for once more.
        assert delete(connection, topic, 50, timeout_ms=60_000) == (ErrorCode.NONE, 50)
    kill_all(cluster)
    cluster.brokers[follower].restart()
    wait_until(lambda: cluster.leader_of(topic, asked=follower) == follower, "a follower leads")
    assert first_offset(cluster.brokers[follower], topic) == 50
    for number in (other, leader):
        cluster.brokers[number].restart()
    cluster.wait_until_in_sync(topic, 3)
    assert min(check(cluster, topic, senders, first=50)) == 50


def delete(connection: RawConnection, topic: str, offset: int, timeout_ms: int) -> tuple[int, int]:
    """Delete the records before an offset; return the error code, and where the log begins now."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=timeout_ms
    )
    (answer,) = connection.call(request, 2, DeleteRecordsResponse).topics[0].partitions
    return answer.error_code, answer.low_watermark


def first_offset(broker: BrokerProcess, topic: str) -> int:
    with barnabas.Admin(broker.bootstrap) as admin:
        (offset,) = admin.beginning_offsets([(topic, 0)]).values()
    return offset
