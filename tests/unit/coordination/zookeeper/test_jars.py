"""The directory in ZOOKEEPER_JARS provides the ZooKeeper servers of a cluster on this machine and of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordination.zookeeper.servers import _find_jars
from barnabas.errors import CoordinationError


def test_named_directory_provides_the_jars(tmp_path: Path) -> None:
    for name in ("zookeeper-3.8.0.jar", "zookeeper-jute-3.8.0.jar", "unrelated-1.0.jar"):
        (tmp_path / name).touch()
    names = [each.name for each in _find_jars({"ZOOKEEPER_JARS": str(tmp_path)})]
    assert names == ["zookeeper-3.8.0.jar", "zookeeper-jute-3.8.0.jar"]


def test_named_directory_without_jars_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CoordinationError, match=f"ZOOKEEPER_JARS={tmp_path}"):
        _find_jars({"ZOOKEEPER_JARS": str(tmp_path)})
