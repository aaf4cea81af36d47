"""The embedded tree against a model of a few lines: any operations, any restarts, the same answers.

The model keeps nodes in a dict and applies a `multi` to a copy, which it throws away if an operation fails.
"""

from __future__ import annotations

import copy
import itertools
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
    parent_of,
)
from barnabas.coordination.node_table import KeptSession
from tests.support.searches import examples

NAMES = st.sampled_from(["a", "b", "b.x", "b0"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
DATA = st.binary(max_size=3)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


@dataclass
class ModelNode:
    data: bytes = b""
    version: int = 0
    owner: int = 0
    children_created: int = 0


@dataclass
class Model:
    nodes: dict[str, ModelNode] = field(default_factory=lambda: {"/": ModelNode()})

    def children(self, path: str) -> list[str]:
        return sorted(each for each in self.nodes if each != "/" and parent_of(each) == path)

    def apply(self, operation, session_id):
        if isinstance(operation, Create):
            return self.create(operation, session_id)
        node = self.nodes.get(operation.path)
        if node is None:
            raise NoNodeError(operation.path)
        if operation.version not in (-1, node.version):
            raise BadVersionError(operation.path)
        if isinstance(operation, Set):
            node.data, node.version = operation.data, node.version + 1
            return node.version
        if isinstance(operation, Delete):
            if self.children(operation.path):
                raise NotEmptyError(operation.path)
            del self.nodes[operation.path]
        return None

    def create(self, operation, session_id):
        parent = self.nodes.get(parent_of(operation.path))
        if parent is None:
            raise NoNodeError(operation.path)
        number = f"{parent.children_created:010d}" if operation.sequential else ""
        path = operation.path + number
        if path in self.nodes:
            raise NodeExistsError(path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(path)
        parent.children_created += 1
        self.nodes[path] = ModelNode(operation.data, owner=session_id if operation.ephemeral else 0)
        return path

    def end_session(self, session_id):
        self.nodes = {path: node for path, node in self.nodes.items() if node.owner != session_id}


class TreeMachine(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        self.kept_ids = itertools.count(1 << 40)
        self.tree = EmbeddedMetadataStore(self.folder / "tree.db", keeps_sessions=True)
        self.session = self.tree.new_session()
        self.keep_session()
        self.model = Model()

    def keep_session(self):
        """Begin a session of another process."""
        self.kept = KeptSession(next(self.kept_ids), b"password", 9_000)
        self.tree.store.keep_session(self.kept)

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def multi_of_another_process(self, operations):
        wanted = copy.deepcopy(self.model)
        try:
            results = [wanted.apply(each, self.kept.id) for each in operations]
        except NodeError as error:
            with pytest.raises(type(error)):
                self.do_in_another_process(operations)
        else:
            found = self.do_in_another_process(operations)
            assert [getattr(each, "version", each) for each in found] == results
            self.model = wanted

    def do_in_another_process(self, operations):
        with self.tree.store.change(self.kept.id) as change:
            return [change.apply(each) for each in operations]

    @rule()
    def end_session_of_another_process(self):
        self.tree.store.end_kept_session(self.kept.id)
        self.model.end_session(self.kept.id)
        self.keep_session()

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4), in_other_session=st.booleans())
    def multi(self, operations, in_other_session):
        tree = self.session if in_other_session else self.tree
        wanted = copy.deepcopy(self.model)
        try:
            results = [wanted.apply(each, tree.session_id) for each in operations]
        except NodeError as error:
            with pytest.raises(type(error)):
                tree.multi(operations)
        else:
            found = tree.multi(operations)
            assert [getattr(each, "version", each) for each in found] == results
            self.model = wanted

    @rule(path=PATHS)
    def create_with_parents(self, path):
        wanted = copy.deepcopy(self.model)
        parts = path.split("/")[1:]
        above = ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]
        try:
            for each in above:
                if each not in wanted.nodes:
                    wanted.create(Create(each), 0)
            wanted.create(Create(path), 0)
        except NodeError as error:
            with pytest.raises(type(error)):
                self.tree.create(path, make_parents=True)
        else:
            assert self.tree.create(path, make_parents=True) == path
            self.model = wanted

    @rule()
    def renew_session(self):
        self.session.close()
        self.model.end_session(self.session.session_id)
        self.session = self.tree.new_session()

    @rule(forgets=st.booleans(), keeps_sessions=st.booleans())
    def restart(self, forgets, keeps_sessions):
        """Close and open again; without a clean close as well, as after the death of the process."""
        if forgets:
            self.tree._store._connection.close()
        else:
            self.tree.close()
        self.tree = EmbeddedMetadataStore(self.folder / "tree.db", keeps_sessions=keeps_sessions)
        self.session = self.tree.new_session()
        assert self.tree.store.kept_sessions() == ([self.kept] if keeps_sessions else [])
        living = {0, self.kept.id} if keeps_sessions else {0}
        self.model.nodes = {path: node for path, node in self.model.nodes.items() if node.owner in living}
        if not keeps_sessions:
            self.keep_session()

    @invariant()
    def tree_is_what_the_model_says(self):
        below = self.tree.subtree("/")
        found = {path: (node.data, node.stat.version, node.stat.owner) for path, node in below.items()}
        wanted = {path: (each.data, each.version, each.owner) for path, each in self.model.nodes.items()}
        del wanted["/"]
        assert found == wanted
        for path, node in below.items():
            assert node == self.tree.get(path)
            assert node.stat.children_count == len(self.model.children(path))
            assert [f"{path}/{name}" for name in self.tree.children(path)] == self.model.children(path)

    def teardown(self):
        self.tree.close()
        shutil.rmtree(self.folder)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=examples(20), stateful_step_count=30)
