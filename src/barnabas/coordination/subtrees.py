"""Operations on several nodes that any tree can do: delete all below a node, make sure that nodes exist.

They read, then write with one `multi`; if the nodes were changed in between, they try again. What is more than a tree
takes at once (`in_parts`) goes in several: then a part of it may be done, if somebody else or the end of this process
comes in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.coordination.metadata_store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    ancestors_of,
    size_of,
)

STEP_BYTES_MAX = 500_000
"""What is written in one step: half of what ZooKeeper takes."""

STEP_OPERATIONS_MAX = 2_000
"""The same in operations, checks not counted: nothing else is done with an embedded tree during a step."""


def in_parts(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield operations in their order, as many together as go into one step; always at least one part.

    >>> [len(part) for part in in_parts([Set("/a", bytes(300_000))] * 3)]
    [1, 1, 1]
    """
    part: list[Operation] = []
    size = 0
    for operation in operations:
        size += size_of(operation)
        if part and (size > STEP_BYTES_MAX or len(part) == STEP_OPERATIONS_MAX):
            yield part
            part, size = [], size_of(operation)
        part.append(operation)
    yield part


def multi_in_parts(
    tree: MetadataStore, checks: Sequence[Operation], operations: Iterable[Operation], also: Sequence[Operation]
) -> None:
    """Do operations, each part of them with all the checks, and the last one with something else besides."""
    *parts, last = in_parts(operations)
    for part in parts:
        tree.multi([*checks, *part])
    tree.multi([*checks, *last, *also])


def delete_recursive(tree: MetadataStore, path: str) -> bool:
    """Delete a node and all below it in one step; False if it did not exist.

    :raises NodeError: others kept changing what is below.
    """
    return delete_all(tree, [path])


def delete_all(
    tree: MetadataStore,
    paths: Iterable[str],
    also: Sequence[Operation] = (),
    checks: Sequence[Operation] = (),
    attempts: int = 10,
) -> bool:
    """Delete several nodes and all below them, together in one step; False if none of them existed.

    :param also: what else is done in that step, if there is something to delete.
    :param checks: what must hold before.
    """
    paths = list(paths)
    for attempt in range(attempts):
        found: dict[str, None] = {}  # each once, also where one of the paths is below another
        for path in paths:
            if tree.exists(path) is not None:
                found.update(dict.fromkeys(reversed([path, *tree.subtree(path)])))
        if not found:
            return False
        try:
            multi_in_parts(tree, checks, map(Delete, found), also)
        except NodeError:
            if attempt == attempts - 1:
                raise
        else:
            return True
    raise AssertionError("the last attempt returns or raises")


def ensure_paths(tree: MetadataStore, paths: Iterable[str]) -> None:
    """Create the nodes that do not exist, and their parents, empty."""
    for path in paths:
        if tree.exists(path) is None:
            try:
                tree.create(path, make_parents=True)
            except NodeExistsError:
                continue  # somebody else was faster, which is as good


def missing_parents(tree: MetadataStore, paths: Iterable[str]) -> list[str]:
    """Return the nodes above `paths` that do not exist, parents before children, each once."""
    missing: dict[str, None] = {}
    known: set[str] = set()
    for path in paths:
        for ancestor in ancestors_of(path):
            if ancestor not in known and tree.exists(ancestor) is None:
                missing[ancestor] = None
            known.add(ancestor)
    return list(missing)


def put_all(
    tree: MetadataStore,
    values: dict[str, bytes],
    needed: Sequence[str] = (),
    attempts: int = 10,
    also: Sequence[Operation] = (),
) -> None:
    """Set nodes to values in one step, whatever they were; create those that do not exist, with their parents.

    The usual case, that all exist, costs one `multi` and no reads.

    :param needed: nodes that have to exist.
    :param also: what else is done in that step.
    :raises NoNodeError: one of them does not; nothing is set.
    """
    checks = [Check(path) for path in needed]
    operations: list[Operation] = [Set(path, data) for path, data in values.items()]
    for attempt in range(attempts):
        try:
            multi_in_parts(tree, checks, operations, also)
        except (NoNodeError, NodeExistsError) as refused:
            if attempt == attempts - 1 or refused.path in needed:
                raise
            operations = [Create(path) for path in missing_parents(tree, values)]
            there = tree.get_all(list(values))
            for path, data in values.items():
                operations.append(Set(path, data) if path in there else Create(path, data))
        else:
            return
