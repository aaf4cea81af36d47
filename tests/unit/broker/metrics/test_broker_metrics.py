"""What a broker's metrics say after some work, and that they are those of the reference page."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from types import FrameType

from barnabas.broker.broker import Broker
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import ManualClock
from barnabas.metrics.exposition import SNAPSHOT_AGE_S_MAX, Snapshots
from barnabas.metrics.metric import Observations
from barnabas.protocol.codec import request_frame
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.in_process_broker import Caller, run_with_broker

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
OF_OTHER_PROCESSES = ("barnabas_mirror_", "barnabas_load_", "barnabas_audit_", "barnabas_registry_")


def values(broker: Broker) -> dict[tuple[str, ...], float | Observations]:
    """Return the metrics by name and label values."""
    samples = [each for each in broker.collect() if each is not None]
    found = {(each.metric.name, *each.labels): each.value for each in samples}
    assert len(found) == len(samples), "a series is there twice"
    return found


async def commit(caller: Caller, offset: int, group: str = "readers", name: str = "clicks", count: int = 1) -> None:
    """Commit an offset in the first partitions of a topic."""
    await caller.call(FindCoordinatorRequest(coordinator_keys=[group]))
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for number in range(count)
    ]
    topic = OffsetCommitRequestTopic(name=name, partitions=partitions)
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    while True:
        response = await caller.call(request, 8)
        if not response.topics[0].partitions[0].error_code:
            return
        await asyncio.sleep(0)


async def fetch(caller: Caller, max_wait_ms: int = 0) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [FetchTopic(topic="clicks", partitions=[wanted])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1_000_000, topics=topics)
    # The answer has regions of files.
    frame = b"".join(request_frame(request, 11, 1, "me"))  # type: ignore[arg-type]
    reply = caller.requests.carry_out([bytearray(frame)[4:]])
    if reply.later is not None:
        await reply.later


async def wait_until_one_waits(broker: Broker) -> None:
    while not sum(broker.requests.counts.waiting.values()):  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)


def test_partitions_are_reported_by_their_leader(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(b"a", b"b", b"c")
        await fetch(caller)
        caller.broker.topics.replicas.leader("clicks", 0).log.delete_records_before(1)
        found = values(caller.broker)
        size = found["kafka_log_log_size", "clicks", "0"]
        expected = {
            ("kafka_brokers",): 1,
            ("kafka_topic_partitions", "clicks"): 3,
            ("kafka_topic_partition_current_offset", "clicks", "0"): 3,
            ("kafka_topic_partition_oldest_offset", "clicks", "0"): 1,
            ("kafka_topic_partition_leader", "clicks", "2"): 0,
            ("kafka_topic_partition_replicas", "views", "1"): 1,
            ("kafka_topic_partition_in_sync_replica", "views", "1"): 1,
            ("kafka_topic_partition_leader_is_preferred", "views", "1"): 1,
            ("kafka_topic_partition_under_replicated_partition", "views", "1"): 0,
            ("kafka_server_brokertopicmetrics_bytesin_total", "clicks"): size,
            ("kafka_server_brokertopicmetrics_messagesin_total", "clicks"): 3,
            ("kafka_server_brokertopicmetrics_replicationbytesin_total", "clicks"): 0,
            ("kafka_server_brokertopicmetrics_replicationbytesout_total", "clicks"): 0,
            ("kafka_server_brokertopicmetrics_bytesout_total", "clicks"): size,
            ("kafka_server_replicamanager_partitioncount",): 6,
            ("kafka_server_replicamanager_leadercount",): 6,
            ("kafka_server_replicamanager_underreplicatedpartitions",): 0,
            ("kafka_server_replicamanager_atminisrpartitioncount",): 6,
            ("kafka_controller_kafkacontroller_globalpartitioncount",): 6,
            ("kafka_log_log_numlogsegments", "views", "0"): 1,
        }
        assert size > 0
        assert {series: found[series] for series in expected} == expected

    run_with_broker(tmp_path, scenario)


def test_lag_counts_records_and_seconds(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(*[b"x"] * 10)
        await commit(caller, 4)
        await caller.broker._metrics.ends.look()
        found = values(caller.broker)
        where = "readers", "clicks", "0"
        assert found["kafka_consumergroup_current_offset", *where] == 4
        assert (found["kafka_consumergroup_lag", *where], found["kafka_consumergroup_lag_sum", *where[:2]]) == (6, 6)
        seconds = found["barnabas_consumergroup_lag_seconds", *where]
        assert isinstance(seconds, float)
        assert seconds >= 0
        assert found["kafka_consumergroup_members", "readers"] == 0
        await commit(caller, 10)
        found = values(caller.broker)
        assert (found["kafka_consumergroup_lag", *where], found["barnabas_consumergroup_lag_seconds", *where]) == (0, 0)

    run_with_broker(tmp_path, scenario)


def test_offsets_of_deleted_topics_are_not_reported(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(b"x")
        await commit(caller, 1)
        await caller.broker.topic_admin.delete("clicks")
        assert not [series for series in values(caller.broker) if series[1:3] == ("readers", "clicks")]

    run_with_broker(tmp_path, scenario)


def test_requests_count_with_their_errors_bytes_and_times(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.call(HeartbeatRequest(group_id="none", generation_id=1, member_id="m"), 4)
        waiting = asyncio.ensure_future(fetch(caller, max_wait_ms=60_000))
        await wait_until_one_waits(caller.broker)
        assert values(caller.broker)["kafka_server_delayedoperationpurgatory_purgatorysize", "Fetch"] == 1
        caller.append(b"x")
        await waiting
        found = values(caller.broker)
        assert found["kafka_server_delayedoperationpurgatory_purgatorysize", "Fetch"] == 0
        assert found["kafka_network_requestmetrics_requests_total", "Heartbeat", "4"] == 1
        assert found["kafka_network_requestmetrics_errors_total", "Heartbeat", "NOT_COORDINATOR"] == 1
        assert found["kafka_network_requestmetrics_errors_total", "FetchConsumer", "NONE"] == 1
        assert found["barnabas_client_requests_total", "me"] == 2
        times = found["kafka_network_requestmetrics_totaltimems", "FetchConsumer"]
        assert isinstance(times, Observations)
        assert sum(times.counts) == 1
        sizes = found["barnabas_request_bytes_total", "FetchConsumer"]
        assert isinstance(sizes, int)
        assert sizes > 50
        fetched = found["kafka_server_brokertopicmetrics_bytesout_total", "clicks"]
        answered = found["barnabas_response_bytes_total", "FetchConsumer"]
        assert isinstance(fetched, int)
        assert isinstance(answered, int)
        assert 0 < fetched < answered

    run_with_broker(tmp_path, scenario)


def test_a_broker_has_the_metrics_of_the_reference_page_and_no_others(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        caller.append(b"x")
        await commit(caller, 0)
        await fetch(caller)
        await caller.broker._metrics.ends.look()
        pieces = await asyncio.to_thread(Snapshots(caller.broker.collect, ManualClock(), lambda _s: None).pieces)
        served = re.findall(r"^# TYPE (\S+) (\S+)$", b"".join(pieces).decode(), re.MULTILINE)
        listed = re.findall(r"^\| `(\S+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        assert [name for name, count in Counter(served).items() if count > 1] == []
        assert set(served) == {each for each in listed if not each[0].startswith(OF_OTHER_PROCESSES)}

    run_with_broker(tmp_path, scenario)


def test_a_broker_is_ready_when_it_has_started(tmp_path: Path) -> None:
    broker = Broker(BrokerConfig(port=0, data=str(tmp_path)), with_status=True)

    async def live() -> None:
        assert (broker.not_ready(), list(broker.collect())) == (["the broker is starting"], [])
        await broker.start()
        await broker.groups.wait_until_loaded()
        assert broker.not_ready() == []
        await broker.stop()
        assert broker.not_ready() == ["the broker is stopping"]

    asyncio.run(live())


def test_metrics_are_read_while_the_event_loop_stands_still(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await commit(caller, 0)
        found: list[int] = []
        reading = threading.Thread(target=lambda: found.append(len(list(caller.broker.collect()))), daemon=True)
        reading.start()
        reading.join(60)
        assert found

    run_with_broker(tmp_path, scenario)


def test_work_between_two_rests_is_that_of_few_partitions(tmp_path: Path) -> None:
    """Each rest comes after a number of items, so no item may stand for work on all partitions."""
    partitions = 400

    async def scenario(caller: Caller) -> None:
        await caller.broker.topic_admin.create("wide", partitions, {})
        await commit(caller, 0, name="wide", count=partitions)
        for number in range(partitions):
            await commit(caller, 0, f"readers-{number}")
        calls = calls_max = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            for _ in caller.broker.collect():
                calls_max = max(calls, calls_max)
                calls = 0
        finally:
            sys.setprofile(None)
        assert calls_max < partitions

    run_with_broker(tmp_path, scenario)


def test_snapshots_leave_no_memory_behind(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        clock = ManualClock()
        snapshots = Snapshots(caller.broker.collect, clock, lambda _s: None)

        def bytes_after(count: int) -> int:
            for _ in range(count):
                clock.advance(2 * SNAPSHOT_AGE_S_MAX)
                snapshots.pieces()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        caller.append(b"x")
        snapshots.pieces()
        tracemalloc.start()
        try:
            few, many = bytes_after(10), bytes_after(40)
        finally:
            tracemalloc.stop()
        assert many - few < sum(map(len, snapshots.pieces()))

    run_with_broker(tmp_path, scenario)
