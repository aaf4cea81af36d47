"""A signal that arrives in the middle of a call, at each of its lines: no record is skipped, and none comes twice."""

from __future__ import annotations

import contextlib
import sys
from itertools import count
from pathlib import PurePath

import pytest

from tests.support.consumer_core import TOPIC, Scene, places

PARTITIONS = 2
BATCH = 3
BETWEEN = {"mark_processed", "take_back", "put_back", "drop"}
"""Bookkeeping of no more than some steps, before a call takes anything or when it was interrupted already."""


class Interruption:
    """Raises KeyboardInterrupt when so many lines of the code that hands records out have been run."""

    FILES = ("fetched_records.py", "arrow.py", "reader.py")
    CALLS = ("_poll", "_poll_columns", "_next_slice", "take", "take_list", "take_iterator", "mark_returned", "load")

    def __init__(self, lines):
        self.lines = lines
        self.raised = False

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.on_call)
        return self

    def __exit__(self, kind, error, trace):
        sys.settrace(self.before)

    def on_call(self, frame, _event, _argument):
        code = frame.f_code
        name = PurePath(code.co_filename).name
        if (code.co_name in BETWEEN and name != "arrow.py") or "barnabas" not in code.co_filename:
            return None
        if name in self.FILES or code.co_name in self.CALLS:
            return self.on_line
        return None

    def on_line(self, _frame, event, _argument):
        if event == "line" and not self.raised:
            self.lines -= 1
            if self.lines < 0:
                self.raised = True
                raise KeyboardInterrupt
        return self.on_line


def columns(scene):
    batch = scene.call(scene.core.poll_columns(4, 1.0)).result
    return list(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))


def lists(scene):
    return places(scene.call(scene.core.poll(4, 1.0)).result)


def iterators(scene):
    return places(scene.call(scene.core.next_slice(scene.core.cursor)).result or ())


@pytest.mark.parametrize("read", [columns, lists, iterators])
def test_an_interruption_anywhere_makes_neither_a_gap_nor_a_copy(read):
    pytest.importorskip("pyarrow")
    for lines in count():
        scene = Scene(partitions=PARTITIONS)
        scene.core.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        scene.deliver(BATCH)
        got = read(scene)
        with contextlib.suppress(KeyboardInterrupt), Interruption(lines) as interruption:
            got += read(scene)
        assert interruption.raised or lines > 10, "some of it was interrupted"
        for _ in range(4):
            fetch = scene.fetch()
            if fetch is not None:
                scene.answer(fetch, BATCH)
            got += read(scene)
        for partition in range(PARTITIONS):
            offsets = [offset for each, offset in got if each == partition]
            assert offsets == list(range(len(offsets))), f"interrupted after {lines} lines"
            assert len(offsets) > BATCH
        if not interruption.raised:
            break


def test_what_the_application_was_not_told_for_an_interruption_the_next_poll_tells():
    scene = Scene(group="g")
    scene.core.subscribe(TOPIC, None, ["assigned"])
    scene.on_metadata()
    poll = scene.poll(timeout_s=100)
    scene.join(scene.state.next_task(), [0])
    assert scene.settle(poll).tells
    told = poll.step
    poll.steps.close()  # before the shell has called the listener
    again = scene.poll(timeout_s=100)
    assert again.tells
    assert again.step is told
    another = scene.poll(timeout_s=0)
    assert another.ended, "it is told once at a time"
    scene.state.on_listener_called(told)
    scene.deliver()
    assert places(scene.settle(again).result) == [(0, 0), (0, 1), (0, 2)]


def test_a_listener_that_goes_on_without_who_polled_is_not_called_again():
    scene = Scene(group="g")
    scene.core.subscribe(TOPIC, None, ["assigned"])
    scene.on_metadata()
    poll = scene.poll(timeout_s=100)
    scene.join(scene.state.next_task(), [0])
    scene.settle(poll).step.goes_on = True
    poll.steps.close()
    assert scene.poll(timeout_s=100).waits
