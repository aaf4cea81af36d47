"""The contract of a tree: what every implementation must do, as ZooKeeper does it.

The modules that import it give it the fixtures `new_session` (opens another session with the same, at first empty
tree) and `tree` (one of them): `test_tree_contract.py` and `tests/interop/test_zookeeper_contract.py`.
"""

from __future__ import annotations

import threading

import pytest

from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
)
from barnabas.coordination.subtrees import delete_all, delete_recursive, ensure_paths, put_all
from barnabas.errors import ClosedError


class TestNodes:
    def test_created_node_is_read_back(self, tree):
        assert tree.create("/a", b"data") == "/a"
        data, stat = tree.get("/a")
        assert data == b"data"
        assert (stat.version, stat.owner, stat.children_count, stat.data_size) == (0, 0, 0, 4)
        assert stat.created_at == stat.modified_at > 0
        assert stat.created_ms == stat.modified_ms > 0

    def test_data_may_be_empty_or_any_bytes(self, tree):
        for number, data in enumerate((b"", bytes(range(256)), b"x" * 100_000)):
            tree.create(f"/n{number}", data)
            assert tree.get(f"/n{number}").data == data

    def test_node_is_created_once(self, tree):
        tree.create("/a", b"1")
        with pytest.raises(NodeExistsError, match="/a"):
            tree.create("/a", b"2")
        assert tree.get("/a").data == b"1"

    def test_parent_must_exist(self, tree):
        with pytest.raises(NoNodeError, match="/a"):
            tree.create("/a/b")

    def test_parents_are_made_when_asked_for(self, tree):
        tree.create("/a/b/c", b"1", make_parents=True)
        tree.create("/a/b/d", b"2", make_parents=True)
        assert tree.get("/a/b").data == b""
        assert tree.children("/a/b") == ["c", "d"]

    def test_node_that_exists_is_not_made_again_with_parents(self, tree):
        tree.create("/a/b", make_parents=True)
        with pytest.raises(NodeExistsError):
            tree.create("/a/b", make_parents=True)

    def test_several_nodes_are_read_at_once_but_for_those_that_are_not_there(self, tree):
        for path in ("/a", "/a/b", "/c"):
            tree.create(path, path.encode())
        assert tree.get_all(["/a/b", "/none", "/c"]) == {"/a/b": tree.get("/a/b"), "/c": tree.get("/c")}
        assert tree.get_all([]) == {}

    def test_each_set_raises_the_version_by_one(self, tree):
        created = tree.exists(tree.create("/a"))
        assert tree.set("/a", b"1").version == 1
        stat = tree.set("/a", b"12")
        assert (stat.version, stat.data_size) == (2, 2)
        assert stat.created_at == created.created_at
        assert stat.modified_at > created.modified_at
        assert tree.get("/a") == (b"12", stat)

    def test_set_with_the_version_read_is_a_compare_and_set(self, tree):
        tree.create("/a")
        assert tree.set("/a", b"mine", version=0).version == 1
        with pytest.raises(BadVersionError, match="/a"):
            tree.set("/a", b"theirs", version=0)
        assert tree.get("/a").data == b"mine"

    def test_node_that_is_not_there_cannot_be_read_set_or_deleted(self, tree):
        for operation in (
            lambda: tree.get("/a"),
            lambda: tree.set("/a", b""),
            lambda: tree.delete("/a"),
            lambda: tree.children("/a"),
        ):
            with pytest.raises(NoNodeError, match="/a"):
                operation()
        assert tree.exists("/a") is None
        assert tree.subtree("/a") == {}

    def test_delete_checks_the_version(self, tree):
        tree.create("/a")
        tree.set("/a", b"1")
        with pytest.raises(BadVersionError):
            tree.delete("/a", version=0)
        tree.delete("/a", version=1)
        assert tree.exists("/a") is None

    def test_node_with_children_is_not_deleted(self, tree):
        tree.create("/a/b", make_parents=True)
        with pytest.raises(NotEmptyError, match="/a"):
            tree.delete("/a")
        tree.delete("/a/b")
        tree.delete("/a")

    def test_node_made_again_starts_with_version_zero(self, tree):
        first = tree.exists(tree.create("/a"))
        tree.set("/a", b"1")
        tree.delete("/a")
        again = tree.exists(tree.create("/a"))
        assert again.version == 0
        assert again.created_at > first.created_at

    def test_children_are_names_in_order_and_direct_ones_only(self, tree):
        for path in ("/a", "/ab", "/a/c", "/a/b", "/a/b/d", "/a/b.x", "/a0"):
            tree.create(path)
        assert tree.children("/a") == ["b", "b.x", "c"]
        assert tree.exists("/a").children_count == 3

    def test_root_holds_the_topmost_nodes(self, tree):
        tree.create("/one")
        tree.create("/two")
        assert {"one", "two"} <= set(tree.children("/"))
        with pytest.raises((NotEmptyError, InvalidPathError)):
            tree.delete("/")

    def test_subtree_holds_all_below_and_nothing_beside(self, tree):
        for path in ("/a", "/a/b", "/a/b/c", "/a/d", "/a.b", "/a0", "/b"):
            tree.create(path, path.encode())
        below = tree.subtree("/a")
        assert list(below) == ["/a/b", "/a/b/c", "/a/d"]
        assert below["/a/b/c"] == tree.get("/a/b/c")

    @pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/./b", "/..", "/a\0b", "/a\nb"])
    def test_what_is_no_path_is_refused(self, tree, path):
        for operation in (
            lambda: tree.create(path),
            lambda: tree.get(path),
            lambda: tree.get_all(["/", path]),
            lambda: tree.set(path, b""),
            lambda: tree.delete(path),
            lambda: tree.exists(path),
            lambda: tree.multi([Create(path)]),
        ):
            with pytest.raises(InvalidPathError):
                operation()

    def test_names_may_hold_dots_blanks_and_any_letters(self, tree):
        for path in ("/.a", "/...", "/a b", "/naïve 群", "/%2F", "/it's"):
            tree.create(path)
            assert tree.exists(path) is not None


class TestSequentialNodes:
    def test_ten_digits_that_grow(self, tree):
        tree.create("/queue")
        paths = [tree.create("/queue/item-", sequential=True) for _ in range(3)]
        assert all(len(path) == len("/queue/item-") + 10 for path in paths)
        assert paths == sorted(paths)
        assert len(set(paths)) == 3

    def test_numbers_are_not_used_again(self, tree):
        tree.create("/queue")
        first = tree.create("/queue/item-", sequential=True)
        tree.delete(first)
        assert tree.create("/queue/item-", sequential=True) > first

    def test_name_may_be_the_digits_alone(self, tree):
        tree.create("/queue")
        assert tree.create("/queue/", sequential=True).removeprefix("/queue/").isdigit()


class TestSessions:
    def test_ephemeral_nodes_go_with_their_session(self, tree, new_session):
        tree.create("/ids")
        other = new_session()
        other.create("/ids/1", b"alive", ephemeral=True)
        other.create("/ids/stays", b"")
        assert tree.exists("/ids/1").owner == other.session_id
        assert other.session_id not in (0, tree.session_id)
        other.close()
        assert tree.children("/ids") == ["stays"]

    def test_ephemeral_node_has_no_children(self, tree):
        tree.create("/a", ephemeral=True)
        with pytest.raises(NoChildrenForEphemeralsError, match="/a/b"):
            tree.create("/a/b")

    def test_sessions_see_the_same_nodes(self, tree, new_session):
        other = new_session()
        other.create("/a", b"1")
        assert tree.get("/a").data == b"1"
        tree.set("/a", b"2")
        assert other.get("/a").data == b"2"
        other.close()

    def test_closed_session_refuses_everything_and_closes_again(self, new_session):
        session = new_session()
        session.close()
        session.close()
        for operation in (
            lambda: session.create("/a"),
            lambda: session.get("/a"),
            lambda: session.children("/"),
            lambda: session.multi([Check("/")]),
            session.flush,
        ):
            with pytest.raises(ClosedError):
                operation()

    def test_tree_that_is_there_answers_a_ping(self, tree):
        tree.ping(60)

    def test_session_that_is_closed_answers_no_ping_and_was_not_lost(self, new_session):
        session = new_session()
        lost = []
        session.on_session_end(lambda: lost.append(True))
        session.close()
        with pytest.raises(ClosedError):
            session.ping(60)
        assert not lost

    def test_flush_changes_nothing_that_can_be_seen(self, tree):
        tree.create("/a", b"1")
        tree.flush()
        assert tree.get("/a").data == b"1"


class TestMulti:
    def test_all_is_done_in_order(self, tree):
        results = tree.multi([Create("/a"), Create("/a/b", b"1"), Set("/a/b", b"2"), Check("/a/b", 1), Delete("/a/b")])
        assert results[:2] == ["/a", "/a/b"]
        assert results[2].version == 1
        assert results[3:] == [None, None]
        assert tree.children("/a") == []

    @pytest.mark.parametrize(
        ("last", "error"),
        [
            (Create("/old"), NodeExistsError),
            (Create("/none/x"), NoNodeError),
            (Set("/old", b"", 7), BadVersionError),
            (Set("/none", b""), NoNodeError),
            (Delete("/old", 7), BadVersionError),
            (Delete("/parent"), NotEmptyError),
            (Check("/old", 7), BadVersionError),
            (Check("/none"), NoNodeError),
        ],
    )
    def test_nothing_is_done_if_one_cannot_be(self, tree, last, error):
        tree.create("/old", b"before")
        tree.create("/parent/child", make_parents=True)
        tree.create("/parent/other")
        with pytest.raises(error) as raised:
            tree.multi([Create("/new"), Set("/old", b"after"), Delete("/parent/child"), Create("/x"), last])
        assert raised.value.path == last.path
        assert tree.exists("/new") is None
        assert tree.get("/old").data == b"before"
        assert tree.exists("/parent/child") is not None

    def test_all_changes_have_one_number(self, tree):
        tree.multi([Create("/a"), Create("/b")])
        assert tree.exists("/a").created_at == tree.exists("/b").created_at

    def test_ephemeral_and_sequential_nodes(self, tree):
        first, second = tree.multi([Create("/n-", sequential=True), Create("/e", ephemeral=True)])
        assert first.startswith("/n-")
        assert tree.exists(second).owner == tree.session_id

    def test_check_of_any_version_asks_for_existence(self, tree):
        tree.create("/a")
        tree.set("/a", b"1")
        assert tree.multi([Check("/a")]) == [None]

    def test_nothing_at_all_is_done_at_once(self, tree):
        assert tree.multi([]) == []

    def test_concurrent_compare_and_sets_lose_no_update(self, new_session):
        sessions = [new_session() for _ in range(4)]
        sessions[0].create("/counter", b"0")

        def count_up(session):
            done = 0
            while done < 50:
                data, stat = session.get("/counter")
                try:
                    session.set("/counter", b"%d" % (int(data) + 1), stat.version)
                except BadVersionError:
                    continue
                done += 1

        threads = [threading.Thread(target=count_up, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sessions[0].get("/counter").data == b"200"


class TestSubtrees:
    def test_all_below_a_node_is_deleted_with_it(self, tree):
        for path in ("/a/b/c", "/a/d", "/ab"):
            tree.create(path, make_parents=True)
        assert delete_recursive(tree, "/a")
        assert tree.exists("/a") is None
        assert tree.exists("/ab") is not None
        assert not delete_recursive(tree, "/a")

    def test_several_nodes_are_deleted_at_once(self, tree):
        tree.create("/a/b", make_parents=True)
        tree.create("/c")
        assert delete_all(tree, ["/a", "/none", "/c"])
        assert tree.exists("/a") is tree.exists("/c") is None

    def test_paths_below_one_another_are_deleted_in_whatever_order_they_are_given(self, tree):
        for given in (["/a/b", "/a"], ["/a", "/a/b"]):
            ensure_paths(tree, ["/a/b", "/a/c"])
            assert delete_all(tree, given)
            assert tree.exists("/a") is None

    def test_paths_are_made_once(self, tree):
        ensure_paths(tree, ["/a/b", "/a/b", "/a/c"])
        tree.set("/a/b", b"1")
        ensure_paths(tree, ["/a/b"])
        assert tree.get("/a/b").data == b"1"

    def test_values_are_not_put_where_a_node_that_is_needed_does_not_exist(self, tree):
        with pytest.raises(NoNodeError) as refused:
            put_all(tree, {"/a/new": b"1"}, needed=["/none"])
        assert refused.value.path == "/none"
        assert tree.exists("/a") is None
        put_all(tree, {"/a/new": b"1"}, needed=["/"])
        assert tree.get("/a/new").data == b"1"

    def test_values_are_put_whether_their_nodes_exist_or_not(self, tree):
        tree.create("/a/old", b"0", make_parents=True)
        put_all(tree, {"/a/old": b"1", "/a/new/deep": b"2", "/a/new/wide": b"3"})
        put_all(tree, {"/a/old": b"4", "/a/new/deep": b"5"})
        found = {path: node.data for path, node in tree.subtree("/a").items()}
        assert found == {"/a/new": b"", "/a/new/deep": b"5", "/a/new/wide": b"3", "/a/old": b"4"}
