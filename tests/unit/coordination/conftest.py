"""Trees to test: each implementation is one parameter of `new_session`, so all pass the same contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.embedded import EmbeddedTree
from barnabas.coordination.tree import Tree


def embedded_sessions(folder: Path) -> Iterator[Callable[[], Tree]]:
    tree = EmbeddedTree(folder / "tree.db", ManualClock())
    yield tree.new_session
    tree.close()


IMPLEMENTATIONS = {"embedded": embedded_sessions}


@pytest.fixture(params=IMPLEMENTATIONS)
def new_session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Tree]]:
    """Open another session with the same, at first empty tree."""
    yield from IMPLEMENTATIONS[request.param](tmp_path)


@pytest.fixture
def tree(new_session: Callable[[], Tree]) -> Iterator[Tree]:
    session = new_session()
    yield session
    session.close()
