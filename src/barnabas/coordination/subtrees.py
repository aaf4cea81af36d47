"""Operations on several nodes of any metadata store, for example the deletion of all nodes below a node.

The functions read nodes, write with one `multi`, and try again if the nodes have changed in between. Operations that
exceed the size of one `multi` are split into several (`in_parts`). If another writer interferes or the process dies,
only some of these operations may be applied.
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
"""The maximum size of a step in bytes: half of ZooKeeper's limit."""

STEP_OPERATIONS_MAX = 2_000
"""The maximum number of operations in a step, without checks.

An embedded store blocks all other calls during a step.
"""


def in_parts(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations in order, divided into the largest parts that fit into one step.

    Yield one empty part if there are no operations.

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
    """Apply operations in several steps, each with all checks. The last step also contains the operations in `also`."""
    *parts, last = in_parts(operations)
    for part in parts:
        tree.multi([*checks, *part])
    tree.multi([*checks, *last, *also])


def delete_recursive(tree: MetadataStore, path: str) -> bool:
    """Delete a node and all nodes below it in one step; return False if it did not exist.

    :raises NodeError: other writers changed the nodes during each attempt.
    """
    return delete_all(tree, [path])


def delete_all(
    tree: MetadataStore,
    paths: Iterable[str],
    also: Sequence[Operation] = (),
    checks: Sequence[Operation] = (),
    attempts: int = 10,
) -> bool:
    """Delete several nodes and all nodes below them in one step; return False if none of them existed.

    :param also: further operations in the same step. They are applied only if a node is deleted.
    :param checks: operations that must succeed before any deletion.
    """
    paths = list(paths)
    for attempt in range(attempts):
        found: dict[str, None] = {}  # Not a list, because one of the paths may be below another path.
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
    """Create missing nodes and their missing ancestors, without data."""
    for path in paths:
        if tree.exists(path) is None:
            try:
                tree.create(path, make_parents=True)
            except NodeExistsError:
                continue  # Another writer has just created the node.


def missing_parents(tree: MetadataStore, paths: Iterable[str]) -> list[str]:
    """Return the missing ancestors of `paths`, parents before children, without duplicates."""
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
    """Set the data of several nodes in one step, without version checks. Create missing nodes and ancestors.

    Usually, all nodes exist. In this case, the function sends one `multi` and no reads.

    :param needed: nodes that must exist.
    :param also: further operations in the same step.
    :raises NoNodeError: a needed node does not exist; no node is changed.
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
