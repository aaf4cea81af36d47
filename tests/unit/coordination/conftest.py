"""Embedded trees to test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.embedded import EmbeddedTree
from barnabas.coordination.tree import Tree


@pytest.fixture
def new_session(tmp_path: Path) -> Iterator[Callable[[], Tree]]:
    """Open another session with the same, at first empty tree."""
    tree = EmbeddedTree(tmp_path / "tree.db", ManualClock())
    yield tree.new_session
    tree.close()


@pytest.fixture
def tree(new_session: Callable[[], Tree]) -> Iterator[Tree]:
    session = new_session()
    yield session
    session.close()
