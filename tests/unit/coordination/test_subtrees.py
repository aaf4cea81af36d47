"""Many nodes at once, in as many steps as a tree takes."""

from __future__ import annotations

import pytest

from barnabas.coordination import subtrees
from barnabas.coordination.metadata_store import Create, NoNodeError, size_of
from barnabas.coordination.subtrees import delete_recursive, in_parts, put_all


def test_parts_keep_the_order_and_the_bound():
    operations = [Create(f"/{number}", bytes(number * 1_000)) for number in range(100)]
    parts = list(in_parts(operations))
    assert [each for part in parts for each in part] == operations
    assert all(sum(map(size_of, part)) <= subtrees.STEP_BYTES_MAX for part in parts)
    assert len(parts) == 11


def test_nothing_is_one_part():
    assert list(in_parts([])) == [[]]


@pytest.fixture
def steps(tree, monkeypatch):
    """The numbers of operations in each step of a tree that takes few."""
    monkeypatch.setattr(subtrees, "STEP_BYTES_MAX", 10 * size_of(Create("/group/offsets/0", b"12")))
    taken = []
    multi = tree.multi

    def counted(operations):
        results = multi(operations)
        taken.append(len(operations))
        return results

    monkeypatch.setattr(tree, "multi", counted)
    return taken


def test_many_values_are_put_and_deleted_in_several_steps(tree, steps):
    tree.create("/needed")
    also = [Create("/told-", sequential=True)]
    values = {f"/group/offsets/{number}": b"%d" % number for number in range(25)}
    for _ in range(2):
        steps.clear()
        put_all(tree, values, needed=["/needed"], also=also)
        assert {path: tree.get(path).data for path in values} == values
        assert len(steps) == 3
    assert len([name for name in tree.children("/") if name.startswith("told-")]) == 2
    steps.clear()
    assert delete_recursive(tree, "/group")
    assert tree.exists("/group") is None
    assert len(steps) == 3


def test_no_value_is_put_where_a_node_that_is_needed_is_missing(tree, steps):
    with pytest.raises(NoNodeError):
        put_all(tree, {f"/group/offsets/{number}": b"" for number in range(25)}, needed=["/needed"])
    assert steps == []
