"""Offsets that an earlier release kept in the tree are in the log after the first start; broken off, none is lost."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import offset_move
from barnabas.broker.broker import TREE_FILE
from barnabas.broker.coordinators.appends import ShardLog
from barnabas.broker.offset_move import WRITTEN_AT_ONCE
from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination import offsets, paths
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.errors import ApiError, CoordinationError, ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition
from tests.support.in_process_broker import Caller, run_with_broker

GROUPS = 60
CLICKS, VIEWS = TopicPartition("clicks", 1), TopicPartition("views", 2)


async def nothing(_caller: Caller) -> None:
    """Only start, make the topics, and stop."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder as the earlier release left it: topics, and offsets of many groups in the tree."""
    run_with_broker(tmp_path, nothing)
    with_tree(tmp_path, fill)
    return tmp_path


def fill(tree: EmbeddedMetadataStore) -> None:
    tree.delete(paths.OFFSETS_MOVED)
    for number in range(GROUPS):
        name = f"/consumers/{paths.encode_name(f'team/{number}')}/offsets"
        plain = {"version": 1, "offset": 7, "timestamp": SYSTEM_CLOCK.time_ms()}
        full = {**plain, "offset": number, "leader_epoch": 3, "metadata": "by test"}
        tree.create(f"{name}/clicks/1", json.dumps(full).encode(), make_parents=True)
        tree.create(f"{name}/views/2", json.dumps(plain).encode(), make_parents=True)
    tree.create("/consumers/without-offsets", make_parents=True)


def with_tree(folder: Path, action: Callable[[EmbeddedMetadataStore], Any]) -> Any:
    tree = EmbeddedMetadataStore(folder / TREE_FILE, SYSTEM_CLOCK)
    try:
        return action(tree)
    finally:
        tree.close()


async def settled(caller: Caller) -> None:
    """Wait until all groups are served."""
    while not is_settled(caller):  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


def is_settled(caller: Caller) -> bool:
    try:
        caller.broker.offsets.group_ids()
    except ApiError:
        return False
    return caller.broker.groups.has_topic


def committed(caller: Caller, group_id: str) -> dict[TopicPartition, OffsetAndMetadata | None]:
    found = caller.broker.offsets.committed(group_id)
    return {where: found.get(where) for where in found}


def check(caller: Caller) -> None:
    for number in range(GROUPS):
        assert committed(caller, f"team/{number}") == {
            CLICKS: OffsetAndMetadata(number, "by test", 3),
            VIEWS: OffsetAndMetadata(7),
        }
    assert len(caller.broker.offsets.group_ids()) == GROUPS
    stored = caller.broker.groups.find("team/0").machine.offsets.of("team/0")
    assert stored[CLICKS].topic_id == caller.id_of("clicks")


def test_offsets_move_into_the_log_once_and_a_line_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def first(caller: Caller) -> None:
        await settled(caller)
        check(caller)
        await caller.broker.offsets.commit("team/5", {CLICKS: OffsetAndMetadata(100)})

    async def second(caller: Caller) -> None:
        await settled(caller)
        assert committed(caller, "team/5")[CLICKS] == OffsetAndMetadata(100)

    run_with_broker(folder, first)
    lines = [each.getMessage() for each in caplog.records if each.getMessage().startswith("migrated ")]
    assert lines == [f"migrated {2 * GROUPS} committed offsets of {GROUPS + 1} groups to __consumer_offsets"]
    assert with_tree(folder, offsets.groups_with_offsets) == []
    run_with_broker(folder, second)
    assert len([each for each in caplog.records if each.getMessage().startswith("migrated ")]) == 1


def test_groups_are_not_served_before_their_offsets_have_moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_move, "_read", refuse)

    async def scenario(caller: Caller) -> None:
        await caller.broker.groups.ensure_topic()
        with pytest.raises(ApiError) as caught:
            caller.broker.offsets.commit("team/5", {CLICKS: OffsetAndMetadata(100)})
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run_with_broker(folder, scenario)


def refuse(*_arguments: object) -> None:
    raise CoordinationError("the disk is full")


@pytest.mark.parametrize("step", ["_read", "_delete", "note"])
@pytest.mark.parametrize("calls_before", [0, 1, 2])
def test_what_was_broken_off_is_completed_by_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, calls_before: int
) -> None:
    place, name = (offset_move.topic_metadata_store, "note_offsets_moved") if step == "note" else (offset_move, step)
    original, broken = getattr(place, name), asyncio.Event()
    calls = iter(range(calls_before))

    def break_off(*arguments: Any) -> Any:
        if next(calls, None) is None:
            broken.set()
            raise CoordinationError("killed")
        return original(*arguments)

    async def first(_caller: Caller) -> None:
        if step != "note" or not calls_before:  # it is called once
            async with asyncio.timeout(30):
                while not broken.is_set():  # noqa: ASYNC110 - set by another thread
                    await asyncio.sleep(0.01)

    async def second(caller: Caller) -> None:
        await settled(caller)
        check(caller)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, break_off)
        run_with_broker(folder, first)
    run_with_broker(folder, second)


def test_node_that_is_damaged_keeps_nothing_else_from_moving(folder: Path) -> None:
    with_tree(folder, lambda tree: tree.set("/consumers/team%2F3/offsets/clicks/1", b"garbage"))

    async def scenario(caller: Caller) -> None:
        await settled(caller)
        assert CLICKS not in committed(caller, "team/3")
        assert TopicPartition("views", 2) in committed(caller, "team/3")
        assert committed(caller, "team/4")[CLICKS] == OffsetAndMetadata(4, "by test", 3)

    run_with_broker(folder, scenario)


def test_topic_that_is_made_anew_meanwhile_gets_none_of_the_old_offsets(folder: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.topic_admin.delete("views")
        await caller.broker.topic_admin.create("views", 3, {})
        await settled(caller)
        for number in range(GROUPS):
            assert committed(caller, f"team/{number}") == {CLICKS: OffsetAndMetadata(number, "by test", 3)}

    run_with_broker(folder, scenario)


def test_group_whose_name_fits_no_record_keeps_no_other_from_moving(folder: Path) -> None:
    name = f"/consumers/{'x' * 40_000}/offsets/clicks/1"
    with_tree(folder, lambda tree: tree.create(name, b'{"version":1,"offset":7,"timestamp":7}', make_parents=True))

    async def scenario(caller: Caller) -> None:
        await settled(caller)
        check(caller)

    run_with_broker(folder, scenario)


def test_many_offsets_of_one_group_move_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * WRITTEN_AT_ONCE + 1
    node = b'{"version":1,"offset":7,"timestamp":7}'

    def fill_wide(tree: EmbeddedMetadataStore) -> None:
        for number in range(count):
            tree.create(f"/consumers/wide/offsets/clicks/{number}", node, make_parents=True)

    with_tree(folder, fill_wide)
    sizes: list[int] = []
    original = ShardLog.write

    def write(into: ShardLog[Any], append: Any) -> None:
        sizes.append(len(append.records))
        original(into, append)

    monkeypatch.setattr(ShardLog, "write", write)

    async def scenario(caller: Caller) -> None:
        await settled(caller)
        assert len(committed(caller, "wide")) == count

    run_with_broker(folder, scenario)
    assert sum(sizes) == count + 2 * GROUPS
    assert max(sizes) <= WRITTEN_AT_ONCE
