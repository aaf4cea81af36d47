"""Embedded trees to test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStore


@pytest.fixture
def new_session(tmp_path: Path) -> Iterator[Callable[[], MetadataStore]]:
    """Open another session with the same, at first empty tree."""
    tree = EmbeddedMetadataStore(tmp_path / "tree.db", ManualClock())
    yield tree.new_session
    tree.close()


@pytest.fixture
def tree(new_session: Callable[[], MetadataStore]) -> Iterator[MetadataStore]:
    session = new_session()
    yield session
    session.close()
