"""The bytes that each rise of the high watermark makes readable."""

from __future__ import annotations

import pytest

from barnabas.broker import replica_storage
from barnabas.broker.replica_storage import UnexposedAppends


def test_rise_exposes_the_appends_that_end_below_it() -> None:
    unexposed = UnexposedAppends()
    for end_offset, size in ((10, 100), (20, 200), (30, 300)):
        unexposed.note(end_offset, size)
    assert unexposed.expose(20) == 300
    assert unexposed.expose(29) == 0
    assert unexposed.expose(30) == 300
    assert unexposed.expose(40) == 0


def test_truncated_appends_are_never_exposed() -> None:
    unexposed = UnexposedAppends()
    unexposed.note(10, 100)
    unexposed.note(20, 200)
    unexposed.clear()
    unexposed.note(15, 50)
    assert unexposed.expose(20) == 50


def test_many_appends_take_bounded_memory_and_lose_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_storage, "UNEXPOSED_APPENDS_MAX", 4)
    unexposed = UnexposedAppends()
    for end_offset in range(1, 11):
        unexposed.note(end_offset, 1)
    assert len(unexposed) == 4
    assert unexposed.expose(3) == 3
    assert unexposed.expose(10) == 7
