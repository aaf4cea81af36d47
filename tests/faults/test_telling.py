"""A scenario that fails says what was wrong and where, also where an assertion has no message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import stage
from tests.faults.stage import Scenario
from tests.faults.telling import told, where


def test_an_assertion_without_message_has_its_place() -> None:
    def is_wrong() -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as failure:
        is_wrong()
    what, *places = told(failure.value).splitlines()
    assert what == "AssertionError"
    assert "test_telling.py" in places[-1]
    assert places[-1].endswith("in is_wrong: raise AssertionError")


def test_a_thread_that_stands_has_its_place() -> None:
    is_over = threading.Event()

    def waits() -> None:
        is_over.wait()

    thread = threading.Thread(target=waits)
    thread.start()
    try:
        while "in waits: is_over.wait()" not in where(thread):
            pass
    finally:
        is_over.set()
        thread.join()
    assert where(thread) == "it has ended"


def test_a_run_that_fails_tells_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nothing(*_: object) -> Iterator[tuple[None, None]]:
        raise AssertionError
        yield

    monkeypatch.setattr(stage, "_cluster", nothing)
    result = stage.run(Scenario("1", "", lambda _: None), 1, tmp_path / "run", is_short=True)
    (problem,) = result.problems
    assert "in nothing: raise AssertionError" in problem
