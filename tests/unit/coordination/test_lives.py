"""The life counters of log directories in the metadata tree."""

from __future__ import annotations

import pytest

from barnabas.coordination import paths
from barnabas.coordination.lives import read_lives, write_lives
from barnabas.coordination.tree import Tree
from barnabas.model import LIFE_MAX, LifeMark

MARK = LifeMark(7, 1_700_000_000_000, 42)


def test_counter_that_was_written_is_read(tree: Tree) -> None:
    assert write_lives(tree, 1, {"one": MARK, "t/w o": MARK._replace(life=9)}) == []
    assert read_lives(tree, ["one", "t/w o", "none"]) == {"one": MARK, "t/w o": MARK._replace(life=9)}
    path = "/brokers/lives/one"
    assert tree.get(path).data == b'{"version":1,"broker":1,"life":7,"timestamp":1700000000000,"records":42}'


def test_counter_in_the_tree_never_goes_back(tree: Tree) -> None:
    write_lives(tree, 1, {"one": MARK})
    assert write_lives(tree, 1, {"one": MARK}) == ["one"]
    assert write_lives(tree, 1, {"one": MARK._replace(life=6), "two": MARK}) == ["one"]
    assert read_lives(tree, ["one"]) == {"one": MARK}
    assert write_lives(tree, 1, {"one": MARK._replace(life=8)}) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00",
        b"[]",
        b"{}",
        b'{"life":null}',
        b'{"life":-1}',
        b'{"life":"many"}',
        b'{"life":1e400}',
        b'{"life":7,"records":-5}',
        b'{"life":%d}' % (LIFE_MAX + 1),
        b'{"life":"%s"}' % (b"9" * 10_000),
        b"[" * 10_000,
    ],
    ids=range(12),
)
def test_value_that_no_broker_writes_counts_as_missing(
    tree: Tree, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tree.create(paths.life("one"), data, make_parents=True)
    assert read_lives(tree, ["one"]) == {}
    assert len(caplog.records) == 1
    assert write_lives(tree, 1, {"one": MARK}) == []
    assert read_lives(tree, ["one"]) == {"one": MARK}
