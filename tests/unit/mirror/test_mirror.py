"""What ends a mirror."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.mirror.mirror import Mirror, MirrorConfig


def test_bug_in_what_looks_after_a_partition_ends_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_link: object) -> None:
        raise ZeroDivisionError("a bug")

    async def mirrored() -> None:
        sides = ({"bootstrap.servers": "localhost:1"}, {"bootstrap.servers": "localhost:2"})
        mirror = Mirror(MirrorConfig(*sides, topics=("clicks",)), lambda _event: None)
        monkeypatch.setattr(mirror._placing, "look_after", broken)
        view = SimpleNamespace(name="clicks", topic_id=b"id", partitions=[SimpleNamespace(partition=0)])
        followed: Any = SimpleNamespace(source=view, target=view, is_compacted=False)
        mirror._on_topic(followed)
        async with asyncio.timeout(60):
            await mirror.run_until(asyncio.Event())

    with pytest.raises(ZeroDivisionError):
        asyncio.run(mirrored())
