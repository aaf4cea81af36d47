"""Topics that other brokers have deleted, and made again, of which nothing was heard here yet."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.coordination import topic_deletions, topic_metadata_store
from barnabas.errors import ApiError, ErrorCode
from tests.support.topics_bench import CONFIG, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def delete_unheard(bench: Bench, *, make_again: bool) -> bytes:
    """Let another broker delete the topic, and make one again under its name; return the id of the deleted one."""
    topic = bench.topics.get("clicks")
    assert topic is not None
    noted = topic_deletions.note_deletion(bench.tree, topic.id, "clicks", [CONFIG.broker_id])
    assert topic_metadata_store.delete_topic(bench.tree, "clicks", noted)
    if make_again:
        topic_metadata_store.create_topic(
            bench.tree, "clicks", uuid.uuid4().bytes, [[CONFIG.broker_id]] * 2, {"retention.ms": "7"}
        )
    return topic.id


def test_topic_made_again_unheard_is_deleted_with_its_own_id_noted(bench: Bench) -> None:
    """Simulated seed 95862: the id of the former one was noted, so replicas of this one stayed on other brokers."""
    bench.create()
    former = delete_unheard(bench, make_again=True)
    made_again = topic_metadata_store.read_topic(bench.tree, "clicks")
    assert made_again is not None
    asyncio.run(bench.topic_admin.delete("clicks"))
    assert bench.partitions_in_tree() == 0
    assert bench.forgotten == [({made_again.topic_id}, {"clicks"})]
    assert topic_deletions.read_deletions(bench.tree).keys() == {former}
    assert bench.folders("clicks-?") == []


def test_topic_made_again_unheard_is_not_deleted_for_the_id_of_the_former_one(bench: Bench) -> None:
    bench.create()
    former = delete_unheard(bench, make_again=True)
    with pytest.raises(ApiError) as caught:
        asyncio.run(bench.topic_admin.delete("clicks", former))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert bench.partitions_in_tree() == 2


def test_topic_made_again_unheard_grows_and_is_configured_by_what_it_is(bench: Bench) -> None:
    bench.create(max_message_bytes="777")
    delete_unheard(bench, make_again=True)
    with pytest.raises(ApiError, match="has 2 partitions"):
        bench.grow(2)
    bench.restart()
    bench.grow(3)
    assert bench.partitions_in_tree() == 3
    delete_unheard(bench, make_again=True)
    asyncio.run(bench.topic_admin.alter("clicks", lambda settings: {**settings, "retention.bytes": "9"}))
    info = topic_metadata_store.read_topic(bench.tree, "clicks")
    assert info is not None
    assert info.config == {"retention.ms": "7", "retention.bytes": "9"}


@pytest.mark.parametrize("change", ["delete", "grow", "alter"])
def test_topic_deleted_unheard_is_not_known(bench: Bench, change: str) -> None:
    bench.create()
    delete_unheard(bench, make_again=False)
    arguments = {"delete": (), "grow": (3,), "alter": (dict,)}[change]
    with pytest.raises(ApiError) as caught:
        asyncio.run(getattr(bench.topic_admin, change)("clicks", *arguments))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.partitions_in_tree() == 0
    assert bench.folders("clicks-?") == ["clicks-0"]
