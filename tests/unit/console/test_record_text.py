"""Records as text: hostile content is visible, bounded, and never changes how a page looks."""

from __future__ import annotations

import json

import pytest

from barnabas.console.record_text import (
    SHOWN_CHARACTERS_MAX,
    TREE_BYTES_MAX,
    TREE_DEPTH_MAX,
    TREE_NODES_MAX,
    Branch,
    at_path,
    shown,
    tree_of,
    visible,
)


def count(node: Branch) -> int:
    return 1 + sum(map(count, node.children))


def depth(node: Branch) -> int:
    return 1 + max(map(depth, node.children), default=0)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        (b"<script>", "<script>"),
        (b"a\x00\x1b[31m", "a\\x00\\x1b[31m"),
        ("\u202eevil\u2066".encode(), "\\u202eevil\\u2066"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"tab\tand\nline", "tab\tand\nline"),
        ("\U000e0001x".encode(), "\\U000e0001x"),
        (b"", ""),
    ],
    ids=["plain", "script", "control", "direction", "invalid", "blank", "tag", "empty"],
)
def test_text_is_visible(data: bytes, text: str) -> None:
    assert shown(data).text == text


def test_large_values_are_cut() -> None:
    found = shown(b"x" * 10_000_000)
    assert (len(found.text), found.size, found.is_cut, found.tree) == (SHOWN_CHARACTERS_MAX, 10_000_000, True, None)
    assert not shown(b"x" * SHOWN_CHARACTERS_MAX).is_cut


def test_null_differs_from_its_text() -> None:
    assert shown(None).is_null
    assert not shown(b"null").is_null


def test_json_becomes_a_tree() -> None:
    tree = tree_of(b'{"user": {"id": 7, "tags": ["a", null]}, "\\u202e": true}')
    assert tree is not None
    assert tree.text == "{2}"
    user, other = tree.children
    assert (user.name, user.children[0]) == ("user", Branch("id", "7"))
    assert [each.text for each in user.children[1].children] == ['"a"', "null"]
    assert (other.name, other.text) == ("\\u202e", "true")


def test_trees_are_bounded() -> None:
    wide = tree_of(json.dumps(list(range(5_000))).encode())
    assert wide is not None
    assert count(wide) <= TREE_NODES_MAX + 1
    assert wide.text.endswith("not shown")
    deep = tree_of(b"[" * 500 + b"]" * 500)
    assert deep is not None
    assert depth(deep) <= TREE_DEPTH_MAX + 1
    assert tree_of(b"[" * 60_000 + b"]" * 4_000) is None
    assert tree_of(b"[" + b"1," * TREE_BYTES_MAX + b"1]") is None
    assert tree_of(b"{broken") is None
    assert tree_of(b"7") is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("user.ids.1", 8),
        ("user", {"ids": [7, 8]}),
        ("user.no", None),
        ("user.ids.9", None),
        ("user.ids.x", None),
        ("", None),
    ],
    ids=["list", "object", "missing", "beyond", "no-number", "empty"],
)
def test_values_at_paths(path: str, value: object) -> None:
    assert at_path(b'{"user": {"ids": [7, 8]}}', path) == value


def test_paths_into_other_data_find_nothing() -> None:
    for data in (None, b"", b"no json", b"\xff", b"[" * 100_000):
        assert at_path(data, "a.b") is None


def test_ascii_text_is_returned_unchanged() -> None:
    assert visible("a b") == "a b"
