"""`cluster.json`."""

from __future__ import annotations

import pytest

from barnabas.cli.cluster_file import NAME, ClusterFile
from barnabas.errors import DataFolderError


def test_what_was_written_is_read(tmp_path) -> None:
    written = ClusterFile({1: 9092, 2: 9093}, {2: 4711}, (2181,))
    written.write(tmp_path)
    assert ClusterFile.read(tmp_path) == written


def test_a_new_folder_has_nothing(tmp_path) -> None:
    assert ClusterFile.read(tmp_path) == ClusterFile()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"zookeeper": [], "brokers": []}',
        b'{"zookeeper": [], "brokers": {"x": 1}}',
        b'{"zookeeper": [], "brokers": {"1": {"port": "9092", "process": 1}}}',
        b'{"zookeeper": [65536], "brokers": {}}',
    ],
)
def test_what_cannot_be_understood_is_told_with_the_files_name(tmp_path, content) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(DataFolderError, match=NAME):
        ClusterFile.read(tmp_path)
