"""The life counters of log directories in the metadata tree."""

from __future__ import annotations

import pytest

from barnabas.coordination import paths
from barnabas.coordination.life_counters import read_life_counters, write_life_counters
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.model import LIFE_MAX, LifeMark

MARK = LifeMark(7, 1_700_000_000_000, 42)


def test_counter_that_was_written_is_read(tree: MetadataStore) -> None:
    assert write_life_counters(tree, 1, {"one": MARK, "t/w o": MARK._replace(life=9)}) == []
    assert read_life_counters(tree, ["one", "t/w o", "none"]) == {"one": MARK, "t/w o": MARK._replace(life=9)}
    path = "/brokers/lives/one"
    assert tree.get(path).data == b'{"version":1,"broker":1,"life":7,"timestamp":1700000000000,"records":42}'


def test_counter_in_the_tree_never_goes_back(tree: MetadataStore) -> None:
    write_life_counters(tree, 1, {"one": MARK})
    assert write_life_counters(tree, 1, {"one": MARK}) == ["one"]
    assert write_life_counters(tree, 1, {"one": MARK._replace(life=6), "two": MARK}) == ["one"]
    assert read_life_counters(tree, ["one"]) == {"one": MARK}
    assert write_life_counters(tree, 1, {"one": MARK._replace(life=8)}) == []


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
    tree: MetadataStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    tree.create(paths.life("one"), data, make_parents=True)
    assert read_life_counters(tree, ["one"]) == {}
    assert len(caplog.records) == 1
    assert write_life_counters(tree, 1, {"one": MARK}) == []
    assert read_life_counters(tree, ["one"]) == {"one": MARK}
