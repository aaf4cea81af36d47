"""Collaborators and callbacks come through constructors: no object assigns them to another object afterwards.

An assignment to an attribute of another object is in order in three cases, as long as the value is no callback:

- the attribute is a field of a data holder (a dataclass or a message), which exists to be filled in;
- the object is new: the same function has just made it;
- the attribute is state of a class of the same package.

`REVIEWED` lists the other assignments, each with a reason.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tidy.test_tidy import ROOT, python_files, tree_of

OWN = {"self", "cls"}
DATA_DECORATORS = ("dataclass", "struct", "message")
CALLBACK_NAMES = ("on_", "after_", "before_", "await_")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)

REVIEWED: dict[str, dict[str, tuple[str, ...]]] = {
    "a field of the connection, which belongs to this handler alone": {
        "broker/handlers/produce.py": ("refused_batches",),
        "broker/handlers/replica_fetch.py": ("delayed_fetch", "has_refused_follower"),
        "broker/zookeeper_listener.py": ("is_gone",),
    },
    "two objects of one class, of which the later one follows": {
        "broker/leader_replica.py": ("_next",),
    },
    "a class of another package, or of Python, that has no other way": {
        "cli/signals.py": ("unraisablehook",),
        "cli/standard_output.py": ("stdout", "filename"),
        "client/client_lifecycle.py": ("atexit",),
        "coordination/zookeeper/session.py": ("_connect", "_invoke", "_read_response"),
        "log_lines.py": ("excepthook",),
        "net/tls.py": ("maximum_version", "minimum_version"),
        "protocol/declare.py": ("__fields__", "__message__"),
        "records/codec_pure/decoding.py": ("__annotations__", "__dataclass_fields__"),
        "registry/schema_types/proto_parser.py": (
            "label", "map_entry", "oneof_index", "package", "syntax", "type_name",
        ),
        "registry/schema_types/protobuf.py": ("package",),
        "serialization/protobuf_values.py": ("nanos",),
        "spark/session.py": (
            "_activeSession", "_active_spark_context", "_gateway", "_instantiatedSession", "_jvm", "handle_error",
        ),
        "spark/worker_python.py": ("pythonExec",),
    },
    "state that the codec or the network shares with the client, on a path for each record or each frame": {
        "client/audit/producer_audit.py": ("next",),
        "client/producer/accumulator.py": ("closed", "owner"),
        "net/client_connection.py": ("in_place_receiver",),
        "net/stream.py": ("length",),
        "net/tls_stream.py": ("length",),
    },
    "of a client: the object is made before the part that it calls": {
        "client/audit/log_counting.py": ("listener",),
        "client/consumer/sync_async_drivers.py": ("now",),
        "client/producer/send_loop.py": ("on_progress",),
    },
    "the part that is called exists only once the part that calls does": {
        "coordination/zookeeper/server/serving.py": ("on_change",),
        "coordination/zookeeper/watches.py": ("on_connected",),
    },
}  # fmt: skip
"""The reviewed assignments: by reason, the attributes in each file."""


class Assignment(NamedTuple):
    """An assignment to an attribute of another object.

    :ivar is_of_new_object: whether the same function has made the object.
    """

    path: str
    line: int
    attribute: str
    text: str
    is_of_new_object: bool
    is_callback: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.path.removeprefix("src/barnabas/"), self.attribute


@functools.cache
def data_fields() -> frozenset[str]:
    """Return the names of all fields of data holders."""
    return frozenset(
        statement.target.id
        for path in python_files("src")
        for node in classes_of(path)
        if any(ast.unparse(each).startswith(DATA_DECORATORS) for each in node.decorator_list)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    )


@functools.cache
def state_of(package: Path) -> frozenset[str]:
    """Return the names of all attributes that the classes of a package assign to themselves."""
    return frozenset(
        target.attr
        for path in package.glob("*.py")
        for node in statements(tree_of(path))
        for target in targets_of(node)
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    )


@functools.cache
def method_names() -> frozenset[str]:
    """Return the names of methods that are no properties, and that no class has as data."""
    methods = frozenset(
        method.name
        for path in python_files("src")
        for node in classes_of(path)
        for method in node.body
        if isinstance(method, Function) and not method.decorator_list
    )
    packages = {path.parent for path in python_files("src")}
    return methods - data_fields() - frozenset().union(*map(state_of, packages))


def classes_of(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in statements(tree_of(path)) if isinstance(node, ast.ClassDef))


def assignments(path: Path) -> Iterator[Assignment]:
    """Yield each assignment to an attribute of an object other than `self` and `cls`."""
    for scope in scopes(tree_of(path)):
        yield from assignments_in(scope, str(path.relative_to(ROOT)))


def assignments_in(scope: ast.AST, path: str) -> Iterator[Assignment]:
    new = set(new_objects(scope))
    for node in own_nodes(scope):
        for target in targets_of(node):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in OWN:
                value = None if isinstance(node, ast.AugAssign) else getattr(node, "value", None)
                yield Assignment(
                    path,
                    target.lineno,
                    target.attr,
                    ast.unparse(node).splitlines()[0][:100],
                    ast.unparse(target.value) in new,
                    is_callback(target.attr, value),
                )


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements within a node, in order, without looking into expressions."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    yield from (node for node in statements(tree) if isinstance(node, Function))


def own_nodes(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope without those of functions within it."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(scope, field, ()):
            if not isinstance(child, Function):
                if isinstance(child, ast.stmt):
                    yield child
                yield from own_nodes(child)


def targets_of(node: ast.AST) -> Iterator[ast.expr]:
    found: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        found = [node.target]
    for target in found:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def new_objects(scope: ast.AST) -> Iterator[str]:
    """Yield the names of variables to which a function assigns the result of a class or of `__new__`."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and is_constructor(node.value.func):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def is_constructor(function: ast.expr) -> bool:
    name = ast.unparse(function).rpartition(".")[2]
    return name in {"cls", "__new__"} or (name[:1].isupper() and not name.isupper())


def is_callback(name: str, value: ast.AST | None) -> bool:
    """Return whether an attribute gets a function or a collaborator, by its name or by the form of the value."""
    if isinstance(value, ast.Constant):
        return False
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"partial", "functools.partial"}
    is_method = isinstance(value, ast.Attribute) and value.attr in method_names()
    is_self = isinstance(value, ast.Name) and value.id == "self"
    return name.startswith(CALLBACK_NAMES) or isinstance(value, ast.Lambda) or is_method or is_self


def is_in_order(each: Assignment) -> bool:
    if each.is_callback:
        return False
    is_state = each.attribute in data_fields() or each.attribute in state_of((ROOT / each.path).parent)
    return is_state or each.is_of_new_object


@functools.cache
def found() -> list[Assignment]:
    """Return the assignments that are not in order."""
    return [each for path in python_files("src") for each in assignments(path) if not is_in_order(each)]


def reviewed() -> set[tuple[str, str]]:
    return {
        (file, attribute)
        for files in REVIEWED.values()
        for file, attributes in files.items()
        for attribute in attributes
    }


def test_no_object_gets_a_collaborator_after_it_was_made() -> None:
    allowed = reviewed()
    refused = [f"{each.path}:{each.line} {each.text}" for each in found() if each.key not in allowed]
    assert not refused, "pass it to the constructor, or publish an event:\n" + "\n".join(refused)


def test_each_reviewed_assignment_is_still_there() -> None:
    gone = reviewed() - {each.key for each in found()}
    assert not gone, f"remove from REVIEWED: {gone}"


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("topics.on_led = groups.follow_topic", True),
        ("topics.follower = lambda replica: None", True),
        ("topics.follower = partial(follow, 1)", True),
        ("topics.roles.owner = self", True),
        ("topics.no_attribute_of_any_class = 3", True),
        ("self.on_led = groups.follow_topic", False),
        ("request.timeout_ms = 3", False),
        ("new = Topics()\nnew.no_attribute_of_any_class = 3", False),
    ],
)
def test_planted_assignments_are_refused(line: str, is_refused: bool) -> None:
    planted = list(assignments_in(ast.parse(line), "src/barnabas/broker/planted.py"))
    assert [each for each in planted if not is_in_order(each)] == (planted if is_refused else [])
