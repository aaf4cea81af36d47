"""What is left of deleted topics: whose part it is, and when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker_events import Events, TopicsDeleted
from barnabas.broker.topic_deletion import TopicDeletion
from barnabas.clock import ManualClock
from barnabas.coordination import topic_deletions, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from tests.support.deletion_notes import note

OWN, OTHER = 1, 2
FIRST, SECOND, THIRD = (bytes(15) + bytes([each]) for each in (1, 2, 3))


class World:
    """A tree with notes, the groups' offsets, and folders of which some refuse to go."""

    def __init__(self, folder: Path) -> None:
        self.tree = EmbeddedMetadataStore(folder / "tree.sqlite", ManualClock())
        self.is_away = False
        self.goes_away_at: Callable[..., Any] | None = None
        self.goes_away_after: Callable[..., Any] | None = None
        self.asked_aside: list[tuple[set[TopicPartition], set[str], set[bytes]]] = []
        self.refusing: set[bytes] = set()
        self.forgotten: list[tuple[set[bytes], set[str]]] = []
        self.why_not: str | None = None
        """Why no offsets can be forgotten."""
        self.start()

    def start(self) -> None:
        """Begin as a broker does; `load` comes later."""
        events = Events()
        events.subscribe(TopicsDeleted, self._forget_offsets)
        self.deletions = TopicDeletion(OWN, self.tree, self._in_metadata_thread, self, events)  # type: ignore[arg-type]

    async def _in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.is_away |= function is self.goes_away_at
        result = None if self.is_away else function(*arguments)
        self.is_away |= function is self.goes_away_after
        if self.is_away:
            raise MetadataStoreUnavailableError("nobody answers")
        return result

    async def _forget_offsets(self, deleted: TopicsDeleted) -> None:
        if self.why_not:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, self.why_not)
        self.forgotten.append((set(deleted.topic_ids), set(deleted.names)))

    def set_strays_aside(
        self,
        known: Collection[TopicPartition],
        untouched: Collection[str],
        deleted: Collection[bytes],
        _living: Collection[bytes],
    ) -> set[bytes]:
        self.asked_aside.append((set(known), set(untouched), set(deleted)))
        return self.refusing & set(deleted)

    def may_have_more(self, _topic: str) -> bool:
        return False

    def note(self, topic_id: bytes, name: str, *brokers: int) -> None:
        note(self.tree, topic_id, name, brokers)

    def noted(self) -> dict[bytes, tuple[int, ...]]:
        """Return who has yet to do its part, by topic."""
        return {topic_id: each.brokers for topic_id, each in topic_deletions.read_deletions(self.tree).items()}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.tree.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


# --- noted ---


def test_deletion_is_noted_for_those_who_have_something_of_it(world: World) -> None:
    async def scenario() -> None:
        topic_metadata_store.create_topic(world.tree, "clicks", FIRST, [[OWN, OTHER]])
        assert not await world.deletions.is_noted(FIRST)
        assert await world.deletions.delete(FIRST, "clicks", {OTHER, OWN})
        assert await world.deletions.is_noted(FIRST)
        assert not await world.deletions.is_noted(SECOND)
        assert world.noted() == {FIRST: (OWN, OTHER)}

    run(scenario())


def test_nothing_is_known_of_notes_while_the_tree_is_away(world: World) -> None:
    async def scenario() -> None:
        world.is_away = True
        with pytest.raises(MetadataStoreUnavailableError):
            await world.deletions.is_noted(FIRST)
        with pytest.raises(MetadataStoreUnavailableError):
            await world.deletions.delete(FIRST, "clicks", {OWN})

    run(scenario())


def test_note_of_a_deletion_that_was_refused_goes_when_the_tree_is_back(world: World) -> None:
    async def scenario() -> None:
        topic_metadata_store.create_topic(world.tree, "clicks", FIRST, [[OWN, OTHER]])
        world.goes_away_at = topic_metadata_store.delete_topic
        with pytest.raises(MetadataStoreUnavailableError):
            await world.deletions.delete(FIRST, "clicks", {OWN, OTHER})
        await world.deletions.end_all({"clicks"})
        assert world.noted() == {FIRST: (OWN, OTHER)}
        world.is_away, world.goes_away_at = False, None
        await world.deletions.end_all({"clicks"})
        assert world.noted() == {}
        assert topic_metadata_store.read_topic(world.tree, "clicks") is not None
        assert world.forgotten == []

    run(scenario())


def test_note_of_a_deletion_that_was_done_though_its_answer_was_lost_stays(world: World) -> None:
    async def scenario() -> None:
        topic_metadata_store.create_topic(world.tree, "clicks", FIRST, [[OWN, OTHER]])
        world.goes_away_after = topic_metadata_store.delete_topic
        with pytest.raises(MetadataStoreUnavailableError):
            await world.deletions.delete(FIRST, "clicks", {OWN, OTHER})
        world.is_away = False
        await world.deletions.end_all(())
        assert world.noted() == {FIRST: (OWN, OTHER)}

    run(scenario())


# --- at a start ---


def test_start_does_what_was_to_be_done_while_it_was_away_and_no_more(world: World) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN, OTHER)
        world.note(SECOND, "views", OTHER)
        world.note(THIRD, "of-old")  # an earlier release named no brokers
        await world.deletions.load(set(), {TopicPartition("kept", 0)}, {"unread"})
        assert world.asked_aside == [({TopicPartition("kept", 0)}, {"unread"}, {FIRST, THIRD})]
        assert world.forgotten == []
        await world.deletions.end_all({"kept"})
        assert world.forgotten == [({FIRST, THIRD}, {"clicks", "of-old"})]
        assert world.noted() == {FIRST: (OTHER,), SECOND: (OTHER,)}

    run(scenario())


def test_note_of_a_topic_that_is_still_there_is_taken_back_and_nothing_is_removed(world: World) -> None:
    """Whoever noted it did not live to delete it."""

    async def scenario() -> None:
        topic_metadata_store.create_topic(world.tree, "clicks", FIRST, [[OWN]])
        world.note(FIRST, "clicks", OWN)
        world.note(SECOND, "views", OWN)
        await world.deletions.load({FIRST}, (), ())
        assert world.asked_aside == [(set(), set(), {SECOND})]
        assert world.noted() == {SECOND: (OWN,)}
        await world.deletions.end_all({"clicks"})
        assert world.forgotten == [({SECOND}, {"views"})]

    run(scenario())


def test_note_stays_until_the_folders_are_gone(world: World) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN)
        world.note(SECOND, "views", OWN)
        world.refusing = {FIRST}
        await world.deletions.load((), (), ())
        await world.deletions.end_all(())
        assert world.noted() == {FIRST: (OWN,)}
        world.refusing = set()
        world.start()
        await world.deletions.load((), (), ())
        await world.deletions.end_all(())
        assert world.noted() == {}

    run(scenario())


# --- while it runs ---


@pytest.mark.parametrize("has_folders", [False, True])
def test_deletion_that_another_broker_made_ends_later_unless_folders_are_left(world: World, has_folders: bool) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN)
        world.deletions.begin(FIRST, "clicks", has_folders=has_folders)
        assert world.forgotten == []
        await world.deletions.end_all(())
        assert world.forgotten == [({FIRST}, {"clicks"})]
        assert world.noted() == ({FIRST: (OWN,)} if has_folders else {})
        await world.deletions.end_all(())
        assert len(world.forgotten) == 1

    run(scenario())


def test_own_deletion_whose_folders_stay_is_left_to_the_next_start(world: World) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN)
        world.deletions.keep_folders(FIRST)
        await world.deletions.end({FIRST: "clicks"}, ())
        assert world.forgotten == [({FIRST}, {"clicks"})]
        assert world.noted() == {FIRST: (OWN,)}

    run(scenario())


def test_offsets_are_forgotten_by_name_only_where_no_topic_has_the_name(world: World) -> None:
    async def scenario() -> None:
        await world.deletions.end({FIRST: "clicks", SECOND: "views", THIRD: ""}, {"clicks", "other"})
        assert world.forgotten == [({FIRST, SECOND, THIRD}, {"views"})]

    run(scenario())


def test_where_there_are_no_groups_a_deletion_ends_too(world: World) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN)
        deletions = TopicDeletion(OWN, world.tree, world._in_metadata_thread, world, Events())  # type: ignore[arg-type]
        await deletions.end({FIRST: "clicks"}, ())
        assert world.noted() == {}

    run(scenario())


# --- what fails is done later ---


def test_offsets_that_cannot_be_forgotten_yet_are_forgotten_later_and_that_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN)
        world.why_not = "still loading"
        for told in (1, 1):
            await world.deletions.end({FIRST: "clicks"}, ())
            assert caplog.text.count("still loading") == told
        assert world.noted() == {FIRST: (OWN,)}
        world.why_not = "another reason"
        await world.deletions.end_all(())
        assert caplog.text.count("another reason") == 1
        world.why_not = None
        await world.deletions.end_all(())
        assert world.forgotten == [({FIRST}, {"clicks"})]
        assert world.noted() == {}
        world.why_not = "another reason"
        await world.deletions.end({SECOND: "views"}, ())
        assert caplog.text.count("another reason") == 2

    run(scenario())


def test_end_that_cannot_be_noted_is_noted_later(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world.note(FIRST, "clicks", OWN, OTHER)
        world.is_away = True
        await world.deletions.end({FIRST: "clicks"}, ())
        assert "cannot record in the metadata store that topic clicks is fully deleted" in caplog.text
        world.is_away = False
        assert world.noted() == {FIRST: (OWN, OTHER)}
        await world.deletions.end_all(())
        assert world.noted() == {FIRST: (OTHER,)}

    run(scenario())
