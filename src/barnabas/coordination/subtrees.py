"""Operations on several nodes that any tree can do: delete all below a node, make sure that nodes exist.

They read, then write with one `multi`; if the nodes were changed in between, they try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.coordination.tree import (
    Check,
    Create,
    Delete,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Tree,
    ancestors_of,
)


def delete_recursive(tree: Tree, path: str) -> bool:
    """Delete a node and all below it in one step; False if it did not exist.

    :raises NodeError: others kept changing what is below.
    """
    return delete_all(tree, [path])


def delete_all(tree: Tree, paths: Iterable[str], attempts: int = 10) -> bool:
    """Delete several nodes and all below them, together in one step; False if none of them existed."""
    paths = list(paths)
    for attempt in range(attempts):
        found: dict[str, None] = {}  # each once, also where one of the paths is below another
        for path in paths:
            if tree.exists(path) is not None:
                found.update(dict.fromkeys(reversed([path, *tree.subtree(path)])))
        try:
            tree.multi([Delete(each) for each in found])
        except NodeError:
            if attempt == attempts - 1:
                raise
        else:
            return bool(found)
    raise AssertionError("the last attempt returns or raises")


def ensure_paths(tree: Tree, paths: Iterable[str]) -> None:
    """Create the nodes that do not exist, and their parents, empty."""
    for path in paths:
        if tree.exists(path) is None:
            try:
                tree.create(path, make_parents=True)
            except NodeExistsError:
                continue  # somebody else was faster, which is as good


def missing_parents(tree: Tree, paths: Iterable[str]) -> list[str]:
    """Return the nodes above `paths` that do not exist, parents before children, each once."""
    missing: dict[str, None] = {}
    known: set[str] = set()
    for path in paths:
        for ancestor in ancestors_of(path):
            if ancestor not in known and tree.exists(ancestor) is None:
                missing[ancestor] = None
            known.add(ancestor)
    return list(missing)


def put_all(tree: Tree, values: dict[str, bytes], needed: Sequence[str] = (), attempts: int = 10) -> None:
    """Set nodes to values in one step, whatever they were; create those that do not exist, with their parents.

    The usual case, that all exist, costs one `multi` and no reads.

    :param needed: nodes that have to exist.
    :raises NoNodeError: one of them does not; nothing is set.
    """
    checks = [Check(path) for path in needed]
    operations: list[Operation] = [*checks, *(Set(path, data) for path, data in values.items())]
    for attempt in range(attempts):
        try:
            tree.multi(operations)
        except (NoNodeError, NodeExistsError) as refused:
            if attempt == attempts - 1 or refused.path in needed:
                raise
            operations = [*checks, *(Create(path) for path in missing_parents(tree, values))]
            for path, data in values.items():
                is_there = tree.exists(path) is not None
                operations.append(Set(path, data) if is_there else Create(path, data))
        else:
            return
