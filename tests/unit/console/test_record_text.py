"""Records as text: hostile content is visible, bounded, and never changes how a page looks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from barnabas.console.record_decoding import Decoded
from barnabas.console.record_text import (
    SHOWN_CHARACTERS_MAX,
    TREE_BYTES_MAX,
    TREE_DEPTH_MAX,
    TREE_NODES_MAX,
    Branch,
    at_path,
    equals_text,
    json_of,
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
    assert at_path({"user": {"ids": [7, 8]}}, path) == value


def test_paths_into_other_data_find_nothing() -> None:
    for data in (None, b"", b"no json", b"\xff", b"[" * 100_000):
        assert at_path(json_of(data), "a.b") is None


DECODED = {
    "at": datetime(2026, 11, 28, tzinfo=UTC),
    "price": Decimal("1.50"),
    "photo": b"\xff\xd8",
    "tags": {"<b>": None},
}


def test_decoded_value_has_a_tree_and_the_text_of_json() -> None:
    found = shown(b"\0\0\0\0\x01...", Decoded(1, DECODED))
    expected = '{"at": "2026-11-28T00:00:00+00:00", "price": "1.50", "photo": "0xffd8", "tags": {"<b>": null}}'
    assert (found.text, found.is_cut, found.size) == (expected, False, 8)
    assert found.tree is not None
    assert [(each.name, each.text) for each in found.tree.children][1:] == [
        ("price", '"1.50"'), ("photo", '"0xffd8"'), ("tags", "{1}"),
    ]  # fmt: skip


def test_text_of_a_large_decoded_value_is_cut() -> None:
    found = shown(b"x", Decoded(1, ["\u202e" * 10] * 100_000))
    assert (len(found.text), found.is_cut) == (SHOWN_CHARACTERS_MAX, True)
    nested: list[object] = []
    for _ in range(5_000):
        nested = [nested]
    assert shown(b"x", Decoded(1, nested)).is_cut


def test_value_that_is_not_decoded_is_shown_as_bytes() -> None:
    found = shown(b"\0\0\0\0\x01a", Decoded(1, problem="no schema"))
    assert (found.text, found.tree) == ("\\x00\\x00\\x00\\x00\\x01a", None)


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (DECODED["price"], "1.50", True),
        (DECODED["at"], "2026-11-28T00:00:00+00:00", True),
        (False, "false", True),
        ([7], "[7]", True),
        (7, "8", False),
        (None, "None", False),
    ],
    ids=["decimal", "time", "boolean", "list", "other", "none"],
)
def test_values_equal_their_texts(value: object, text: str, expected: bool) -> None:
    assert equals_text(value, text) is expected


def test_ascii_text_is_returned_unchanged() -> None:
    assert visible("a b") == "a b"
