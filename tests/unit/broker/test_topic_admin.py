"""The broker's topics: tree and logs change together, or can be brought together again."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster_watch import MetadataUpdate
from barnabas.broker.handlers.incremental_alter_configs import incremental_alter_configs
from barnabas.broker.replica_logs import log_configs
from barnabas.broker.settings.resources import ResourceType
from barnabas.coordination import configs, paths, topic_deletions, topic_metadata_store
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.values import Deletion, encode_partition_state
from barnabas.errors import ApiError, CoordinationError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.incremental_alter_configs import (
    SET,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from tests.support.deletion_notes import note
from tests.support.topics_bench import CONFIG, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


# --- growth ---


def test_topic_whose_new_folders_are_refused_does_not_grow(bench: Bench) -> None:
    bench.create()
    bench.disk.refused = {"clicks-2"}
    with pytest.raises(StorageError, match="clicks-2"):
        bench.grow(3)
    assert bench.partitions_in_tree() == 1
    assert bench.folders("clicks-?") == ["clicks-0"]
    bench.disk.refused.clear()
    bench.grow(3)
    bench.append(2)
    bench.restart()
    assert bench.partitions_in_tree() == 3


def test_growth_that_the_tree_refused_can_be_asked_for_again(bench: Bench) -> None:
    bench.create()
    bench.tree.fails = True
    with pytest.raises(CoordinationError):
        bench.grow(3)
    assert bench.folders("clicks-?") == ["clicks-0"]
    bench.tree.fails = False
    bench.grow(3)
    assert bench.partitions_in_tree() == 3


def test_growth_that_is_in_the_tree_already_is_not_done_twice(bench: Bench) -> None:
    bench.create()
    topic_metadata_store.grow_topic(bench.tree, "clicks", [[CONFIG.broker_id]] * 2, 1)
    with pytest.raises(ApiError, match="3 partitions in the metadata store") as caught:
        bench.grow(2)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    bench.grow(3)
    assert bench.partitions_in_tree() == 3
    bench.append(2)


# --- start ---


def test_leader_epoch_is_after_that_of_the_log_even_if_the_tree_is_older(bench: Bench) -> None:
    bench.create()
    where = TopicPartition("clicks", 0)
    state, version = topic_metadata_store.read_partition_state(bench.tree, where)
    for _ in range(3):
        bench.restart()
    bench.append()
    _, now = topic_metadata_store.read_partition_state(bench.tree, where)
    assert now > version
    bench.tree.set(paths.partition_state(where), encode_partition_state(state))
    bench.restart()
    bench.append()
    assert bench.topics.replicas.leader("clicks", 0).leader_epoch == 4
    assert topic_metadata_store.read_partition_state(bench.tree, where)[0].leader_epoch == 4


def test_start_makes_the_leader_epochs_durable_once(bench: Bench) -> None:
    bench.create(5)
    bench.tree.flushes = 0
    bench.restart()
    assert bench.tree.flushes == 1


def test_settings_of_logs_are_known_before_the_logs_are_loaded(bench: Bench) -> None:
    """After a stop that was not clean, they say what is damage."""
    bench.create(segment_bytes="1000")
    asyncio.run(bench.topic_admin.create("other", 1, {}))
    configs = log_configs(bench.tree, CONFIG)
    assert configs == {"clicks": bench.topics.replicas.leader("clicks", 0).config.log}
    assert configs["clicks"].segment_bytes == 1000


def test_partition_states_are_written_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.create(30)
    sizes: list[int] = []
    multi = bench.tree.multi
    monkeypatch.setattr(bench.tree, "multi", lambda operations: sizes.append(len(operations)) or multi(operations))
    bench.restart()
    assert sizes == [33], "and one that tells the others, and two that guard the topic"


def test_partition_that_cannot_be_loaded_is_offline_and_the_others_are_served(bench: Bench) -> None:
    bench.create(2)
    bench.append(0)
    bench.append(1)
    first = bench.folder / "clicks-0" / f"{0:020}.log"
    first.unlink()
    first.mkdir()
    bench.restart()
    with pytest.raises(StorageError, match="offline"):
        bench.append(0)
    with pytest.raises(StorageError, match="offline"):
        bench.topics.replicas.leader("clicks", 0).read(0, 1_000, min_one_batch=True)
    bench.append(1)


@pytest.mark.parametrize(
    ("node", "data"),
    [
        ("/brokers/topics/clicks", b"garbage"),
        ("/brokers/topics/clicks", b'{"topic_id": "AAEC", "partitions": {"0": [0]}}'),
        ("/brokers/topics/clicks", b'{"topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": {"0": []}}'),
    ],
)
def test_topic_whose_nodes_are_damaged_is_put_aside_and_the_others_are_served(
    bench: Bench, caplog: pytest.LogCaptureFixture, node: str, data: bytes
) -> None:
    bench.create(2, retention_ms="5000")
    bench.append()
    asyncio.run(bench.topic_admin.create("views", 1, {}))
    sound = bench.tree.get(node).data
    bench.tree.set(node, data)
    bench.restart()
    assert [topic.name for topic in bench.topics.all()] == ["views"]
    assert [each.getMessage() for each in caplog.records if "topic clicks is not served" in each.getMessage()]
    assert not [each for each in caplog.records if "belongs to no topic" in each.getMessage()]
    with pytest.raises(ApiError):
        bench.create()
    assert bench.folders("clicks*") == ["clicks-0", "clicks-1"]
    bench.tree.set(node, sound)
    bench.restart()
    assert bench.topics.replicas.leader("clicks", 0).log.log_end_offset == 1


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"nonsense",
        b'{"leader": 1099511627776, "leader_epoch": 0, "isr": [0]}',
        b'{"leader": 0, "leader_epoch": -7, "isr": [0]}',
        b'{"leader": -1, "leader_epoch": 3, "isr": []}',
        b'{"leader": 0, "leader_epoch": 2147483647, "isr": [0]}',
    ],
)
def test_sole_replica_leads_on_whatever_a_stranger_wrote_as_its_state(bench: Bench, data: bytes) -> None:
    bench.create(2)
    bench.append()
    bench.tree.set("/brokers/topics/clicks/partitions/0/state", data)
    bench.restart()
    bench.append()
    assert bench.topics.replicas.leader("clicks", 0).log.log_end_offset == 2
    state, _ = topic_metadata_store.read_partition_state(bench.tree, TopicPartition("clicks", 0))
    assert (state.leader, state.isr) == (0, (0,))
    assert state.leader_epoch > 0


@pytest.mark.parametrize(
    "data", [b"[]", b"nonsense", b'{"config": {"retention.ms": "soon"}}', b'{"config": {"retention.ms": [1]}}']
)
def test_topic_keeps_its_records_where_its_settings_cannot_be_read(bench: Bench, data: bytes) -> None:
    bench.create(1, retention_ms="5000")
    bench.append()
    bench.tree.set("/config/topics/clicks", data)
    bench.restart()
    bench.append()
    kept = bench.topics.replicas.leader("clicks", 0).log.config
    assert (kept.retention_ms, kept.retention_bytes) == (-1, -1)


def test_topic_has_its_other_settings_where_one_cannot_be_understood(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.create(1, retention_ms="5000")
    config = {"retention.ms": "6000", "max.message.bytes": "9" * 5_000, "nobody.knows": "1", "segment.bytes": "2000000"}
    bench.tree.set("/config/topics/clicks", json.dumps({"config": config}).encode())
    bench.restart()
    found = bench.topics.replicas.leader("clicks", 0).log.config
    assert (found.retention_ms, found.segment_bytes) == (6_000, 2_000_000)
    bench.restart()
    lines = [each.getMessage() for each in caplog.records if "/config/topics/clicks" in each.getMessage()]
    assert len(lines) == 1
    asyncio.run(bench.topic_admin.alter("clicks", lambda settings: {**settings, "retention.ms": "7000"}))
    expected = {"retention.ms": "7000", "segment.bytes": "2000000"}
    assert topic_metadata_store.read_topic(bench.tree, "clicks").config == expected


def test_copy_of_a_topic_does_not_take_its_place(bench: Bench) -> None:
    bench.create()
    bench.append()
    bench.tree.create("/brokers/topics/a-copy", bench.tree.get("/brokers/topics/clicks").data)
    state = bench.tree.get("/brokers/topics/clicks/partitions/0/state").data
    bench.tree.create("/brokers/topics/a-copy/partitions/0/state", state, make_parents=True)
    bench.restart()
    assert [topic.name for topic in bench.topics.all()] == ["clicks"]
    assert bench.topics.replicas.leader("clicks", 0).log.log_end_offset == 1


# --- creation ---


@pytest.mark.parametrize("has_metadata", [True, False])
def test_folder_that_the_tree_does_not_know_is_never_touched(bench: Bench, has_metadata: bool) -> None:
    """As with a tree from a backup that is older than the topic."""
    bench.create()
    bench.append()
    topic_metadata_store.delete_topic(bench.tree, "clicks")
    if not has_metadata:
        (bench.folder / "clicks-0" / "partition.metadata").unlink()
    bench.restart()
    for partition_count in (1, 3):
        with pytest.raises(ApiError, match="clicks-0 belongs to an unknown topic") as caught:
            bench.create(partition_count)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert bench.folders("clicks*") == ["clicks-0"]
    assert bench.partitions_in_tree() == 0
    assert bench.logs.all()[TopicPartition("clicks", 0)].log_end_offset == 1


def test_folder_without_its_topic_id_is_used_where_the_disk_is_full(bench: Bench) -> None:
    bench.create()
    bench.append()
    bench.logs.close()
    (bench.folder / "clicks-0" / "partition.metadata").unlink()
    bench.disk.refused = {"partition.metadata.tmp"}
    bench.start()
    bench.append()
    assert bench.topics.replicas.leader("clicks", 0).log.log_end_offset == 2


def test_folder_of_another_topic_of_that_name_is_never_touched(bench: Bench) -> None:
    """As with a tree from a backup that is older than the deletion of a topic and its making anew."""
    bench.create()
    bench.append()
    topic_metadata_store.delete_topic(bench.tree, "clicks")
    topic_metadata_store.create_topic(bench.tree, "clicks", bytes(16), [[CONFIG.broker_id]])
    bench.restart()
    with pytest.raises(StorageError, match="belongs to another topic"):
        bench.append()
    asyncio.run(bench.topic_admin.delete("clicks"))
    with pytest.raises(StorageError, match="clicks-0 exists and contains files of an unknown topic"):
        bench.create()
    assert bench.folders("clicks*") == ["clicks-0"]
    assert (bench.folder / "clicks-0" / f"{0:020}.log").stat().st_size


@pytest.mark.parametrize("is_noted", [False, True])
def test_records_of_a_topic_deleted_meanwhile_are_not_those_of_a_new_one_of_its_name(
    bench: Bench, is_noted: bool
) -> None:
    """Also where nothing says any more whose they are; where no deletion is noted, they are the topic's."""
    bench.create()
    bench.append()
    bench.logs.abandon()
    if is_noted:
        topic_deletions.note_deletion(bench.tree, bench.topics.get("clicks").id, "clicks", [CONFIG.broker_id])  # type: ignore[union-attr]
    topic_metadata_store.delete_topic(bench.tree, "clicks")
    topic_metadata_store.create_topic(bench.tree, "clicks", bytes(16), [[CONFIG.broker_id]])
    (bench.folder / "clicks-0" / "partition.metadata").unlink()
    bench.start()
    assert bench.topics.replicas.leader("clicks", 0).log.is_offline is is_noted
    asyncio.run(bench.topic_admin.delete("clicks"))
    assert bench.folders("clicks-0") == ["clicks-0"] * is_noted


def test_creation_that_fails_removes_only_what_it_made(bench: Bench) -> None:
    (bench.folder / "clicks-2").mkdir()
    (bench.folder / "clicks-2" / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="clicks-2"):
        bench.create(4)
    assert bench.folders("clicks-?") == ["clicks-2"]
    assert (bench.folder / "clicks-2" / "notes.txt").read_text() == "mine"
    assert bench.partitions_in_tree() == 0


def test_topic_that_the_tree_cannot_store_durably_is_deleted_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise MetadataStoreUnavailableError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.tree, "flush", refuse)
        with pytest.raises(MetadataStoreUnavailableError, match="disk is full"):
            bench.create()
    assert bench.topics.get("clicks") is None
    assert topic_metadata_store.read_topics(bench.tree) == {}
    bench.create()


def test_failed_creation_reports_its_own_error_if_the_tree_refuses_the_deletion_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_arguments: object) -> None:
        raise MetadataStoreUnavailableError("no room for the deletion")

    (bench.folder / "clicks-0").mkdir()
    (bench.folder / "clicks-0" / "notes.txt").write_text("mine")
    for function in (topic_metadata_store.take_topic_back, topic_deletions.note_deletion):
        monkeypatch.setattr(function.__module__ + "." + function.__name__, refuse)
    with pytest.raises(StorageError, match="clicks-0"):
        bench.create()
    assert "cannot delete topic clicks" in caplog.text
    assert "no room for the deletion" in caplog.text


def test_neither_a_topic_nor_a_partition_is_made_without_room_on_the_disk(bench: Bench) -> None:
    bench.room = 2
    with pytest.raises(StorageError, match="no room for 3"):
        bench.create(3)
    assert topic_metadata_store.read_topics(bench.tree) == {}
    bench.room = 3
    bench.create(3)
    bench.room = 0
    with pytest.raises(StorageError, match="no room for 1"):
        asyncio.run(bench.topic_admin.grow("clicks", 4))
    assert bench.partitions_in_tree() == 3


def test_requests_have_their_turn_while_many_logs_are_opened(bench: Bench) -> None:
    async def create() -> int:
        creating = asyncio.create_task(bench.topic_admin.create("clicks", 100, {}))
        turns = 0
        while not creating.done():
            await asyncio.sleep(0)
            turns += 1
            if len(bench.logs.all()) < 100:
                assert bench.topics.get("clicks") is None
        await creating
        return turns

    assert asyncio.run(create()) > 100


# --- settings ---


def test_two_changes_of_settings_at_once_are_both_kept(bench: Bench) -> None:
    bench.create(retention_ms="1000")

    def request(name: str, value: str) -> IncrementalAlterConfigsRequest:
        change = IncrementallyAlterableConfig(name=name, config_operation=SET, value=value)
        resource = IncrementalAlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name="clicks", configs=[change]
        )
        return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    async def change_both() -> None:
        bench.gate = asyncio.Event()
        parts = SimpleNamespace(
            topics=bench.topics, topic_admin=bench.topic_admin, settings=None, scheduler=bench.scheduler
        )
        alter = incremental_alter_configs.bind(parts)
        changes = [
            asyncio.create_task(alter.handle(each, None).later)
            for each in (request("segment.bytes", "2000"), request("retention.bytes", "3000"))
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        bench.gate.set()
        for answer in await asyncio.gather(*changes):
            assert [each.error_code for each in answer.responses] == [0]

    asyncio.run(change_both())
    wanted = {"retention.ms": "1000", "segment.bytes": "2000", "retention.bytes": "3000"}
    topic = bench.topics.get("clicks")
    assert topic is not None
    assert topic.settings == configs.read_topic_config(bench.tree, "clicks") == wanted


# --- deletion ---


def test_deletion_goes_on_where_one_folder_is_refused_and_the_next_start_ends_it(bench: Bench) -> None:
    bench.create(3)
    bench.append()
    bench.disk.refused = {"clicks-0"}
    with pytest.raises(StorageError, match="clicks-0"):
        asyncio.run(bench.topic_admin.delete("clicks"))
    assert bench.folders("clicks-?") == ["clicks-0"]
    assert len(bench.forgotten) == 1
    bench.disk.refused.clear()
    bench.restart()
    assert bench.folders("clicks-?") == []
    asyncio.run(bench.topics.end_deletions())
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_new_topic_has_nothing_of_one_whose_folder_could_not_be_set_aside(bench: Bench) -> None:
    bench.create()
    bench.append()
    bench.disk.refused = {"clicks-0"}
    with pytest.raises(StorageError):
        asyncio.run(bench.topic_admin.delete("clicks"))
    with pytest.raises(StorageError):
        bench.create()
    bench.disk.refused.clear()
    bench.create()
    assert bench.topics.replicas.leader("clicks", 0).log.log_end_offset == 0


def test_start_leaves_folders_whose_deletion_nobody_asked_for(bench: Bench) -> None:
    bench.create()
    topic_metadata_store.delete_topic(bench.tree, "clicks")
    note(bench.tree, bytes(16), "clicks", [CONFIG.broker_id])
    bench.restart()
    assert bench.folders("clicks-?") == ["clicks-0"]


def test_topic_deleted_and_made_again_while_this_broker_was_away_begins_empty_here(bench: Bench) -> None:
    bench.create()
    bench.append()
    topic = bench.topics.get("clicks")
    assert topic is not None
    topic_deletions.note_deletion(bench.tree, topic.id, "clicks", [CONFIG.broker_id])
    topic_metadata_store.delete_topic(bench.tree, "clicks")
    topic_metadata_store.create_topic(bench.tree, "clicks", bytes(16), [[CONFIG.broker_id]])
    bench.disk.refused = {"clicks-0"}
    bench.restart()
    with pytest.raises(StorageError, match="a deleted topic still has this name"):
        bench.append()
    bench.disk.refused.clear()
    bench.restart()
    bench.append()
    assert bench.topics.replicas.leader("clicks", 0).log.log_end_offset == 1
    asyncio.run(bench.topics.end_deletions())
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_topic_whose_deletion_was_noted_but_not_done_stays(bench: Bench) -> None:
    bench.create()
    topic = bench.topics.get("clicks")
    assert topic is not None
    topic_deletions.note_deletion(bench.tree, topic.id, "clicks", [CONFIG.broker_id])
    bench.restart()
    bench.append()
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_offsets_in_a_deleted_topic_are_forgotten_with_it(bench: Bench) -> None:
    bench.create()
    topic = bench.topics.get("clicks")
    assert topic is not None
    asyncio.run(bench.topic_admin.delete("clicks"))
    assert bench.forgotten == [({topic.id}, {"clicks"})]
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_next_start_forgets_the_offsets_of_a_topic_whose_deletion_did_not_end(bench: Bench) -> None:
    bench.create()
    topic = bench.topics.get("clicks")
    assert topic is not None
    topic_deletions.note_deletion(bench.tree, topic.id, "clicks", [CONFIG.broker_id])
    topic_metadata_store.delete_topic(bench.tree, "clicks")
    bench.restart()
    assert topic_deletions.read_deletions(bench.tree) == {topic.id: Deletion("clicks", (CONFIG.broker_id,))}
    asyncio.run(bench.topics.end_deletions())
    assert bench.forgotten == [({topic.id}, {"clicks"})]
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_deletion_of_a_topic_that_this_broker_never_heard_of_is_ended_here_too(bench: Bench) -> None:
    """As when it was made and deleted by others while this broker was cut off."""
    bench.create()
    topic = bench.topics.get("clicks")
    assert topic is not None
    note(bench.tree, b"missed" + bytes(10), "orders", [CONFIG.broker_id, 7])
    topic_deletions.note_deletion(bench.tree, topic.id, "clicks", [CONFIG.broker_id])  # is about to be deleted

    async def hear() -> None:
        async def read() -> MetadataUpdate:
            return MetadataUpdate(None, topics={"orders": None})

        await bench.topics.apply_update(read)
        await bench.topics.end_deletions()

    asyncio.run(hear())
    left = topic_deletions.read_deletions(bench.tree)
    assert left == {
        b"missed" + bytes(10): Deletion("orders", (7,)),
        topic.id: Deletion("clicks", (CONFIG.broker_id,)),
    }


def test_offsets_that_could_not_be_forgotten_are_forgotten_later(bench: Bench) -> None:
    bench.create()
    bench.cannot_forget = True
    asyncio.run(bench.topic_admin.delete("clicks"))
    assert len(topic_deletions.read_deletions(bench.tree)) == 1
    bench.cannot_forget = False
    asyncio.run(bench.topics.end_deletions())
    assert len(bench.forgotten) == 1
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_end_of_a_deletion_that_the_tree_refused_is_noted_later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise CoordinationError("the tree is out of reach")

    bench.create()
    with monkeypatch.context() as patch:
        patch.setattr(topic_deletions, "end_deletion", refuse)
        asyncio.run(bench.topic_admin.delete("clicks"))
    assert len(topic_deletions.read_deletions(bench.tree)) == 1
    asyncio.run(bench.topics.end_deletions())
    assert topic_deletions.read_deletions(bench.tree) == {}


def test_offsets_of_a_new_topic_of_the_name_of_a_deleted_one_stay(bench: Bench) -> None:
    bench.create()
    note(bench.tree, bytes(16), "clicks", [CONFIG.broker_id])
    bench.restart()
    asyncio.run(bench.topics.end_deletions())
    assert bench.forgotten == [({bytes(16)}, set())]


# --- clients that go ---


def test_refusal_of_what_a_client_asked_for_that_is_gone_is_no_error_of_the_broker(bench: Bench) -> None:
    complaints: list[dict[str, Any]] = []

    async def ask_twice_and_go() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        bench.gate = asyncio.Event()
        creations = [asyncio.create_task(bench.topic_admin.create("clicks", 1, {})) for _ in range(2)]
        for _ in range(10):  # turns of the loop in which both begin
            await asyncio.sleep(0)
        creations[1].cancel()
        bench.gate.set()
        outcomes = await asyncio.gather(*creations, return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)

    asyncio.run(ask_twice_and_go())
    gc.collect()
    assert bench.partitions_in_tree() == 1
    assert complaints == []
