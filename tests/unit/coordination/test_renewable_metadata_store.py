"""A tree whose sessions follow one another: which one is asked, and what is left when none can be opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordination.metadata_store import Check, MetadataStore, MetadataStoreUnavailableError
from barnabas.coordination.renewable_metadata_store import RenewableMetadataStore
from barnabas.errors import ClosedError


def ignore(*_: object) -> None:
    """A watch, or what is called at a session's end."""


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("on_session_end", (ignore,), {}),
    ("ping", (1.5,), {}),
    ("create", ("/a", b"data"), {"ephemeral": True, "sequential": False, "make_parents": True}),
    ("create", ("/a", b""), {"ephemeral": False, "sequential": True, "make_parents": False}),
    ("get", ("/a", ignore), {}),
    ("get_all", (["/a", "/b"],), {}),
    ("set", ("/a", b"data", 7), {}),
    ("delete", ("/a", 7), {}),
    ("exists", ("/a", ignore), {}),
    ("children", ("/a", ignore), {}),
    ("subtree", ("/a",), {}),
    ("multi", ([Check("/a", 7)],), {}),
    ("flush", (), {}),
]


class Session:
    """Notes what it is asked, and answers each with an object of its own."""

    def __init__(self, number: int, events: list[str]) -> None:
        self.session_id = number
        self.session_timeout_s = number * 10.0
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answer = object()
        self._events = events

    def close(self) -> None:
        self._events.append(f"close {self.session_id}")

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*arguments: Any, **named: Any) -> object:
            self.asked.append((name, arguments, named))
            return self.answer

        return call


class World:
    """Opens sessions, numbered from 1, unless it is told not to."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.sessions: list[Session] = []
        self.is_away = False

    def open(self) -> MetadataStore:
        if self.is_away:
            self.events.append("refuse")
            raise MetadataStoreUnavailableError("nobody answers")
        session = Session(len(self.sessions) + 1, self.events)
        self.sessions.append(session)
        self.events.append(f"open {session.session_id}")
        return session  # type: ignore[return-value]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_each_call_goes_to_the_present_session_as_it_was_made(
    world: World, call: tuple[str, tuple[Any, ...], dict[str, Any]]
) -> None:
    tree = RenewableMetadataStore(world.open)
    tree.renew()
    name, arguments, named = call
    answer = getattr(tree, name)(*arguments, **named)
    first, second = world.sessions
    assert second.asked == [call]
    assert first.asked == []
    if name not in {"on_session_end", "ping", "delete", "flush"}:
        assert answer is second.answer


def test_no_call_of_a_tree_is_left_out() -> None:
    of_trees = {name for name in vars(MetadataStore) if not name.startswith("_")}
    assert of_trees == {name for name, _, _ in CALLS} | {"session_id", "session_timeout_s", "close"}


def test_what_a_session_says_of_itself_is_that_of_the_present_one(world: World) -> None:
    tree = RenewableMetadataStore(world.open)
    assert (tree.session_id, tree.session_timeout_s) == (1, 10.0)
    tree.renew()
    assert (tree.session_id, tree.session_timeout_s) == (2, 20.0)


def test_lost_session_is_closed_before_the_next_is_opened(world: World) -> None:
    tree = RenewableMetadataStore(world.open)
    tree.renew()
    tree.close()
    assert world.events == ["open 1", "close 1", "open 2", "close 2"]


def test_between_two_sessions_every_call_says_that_the_tree_is_away(world: World) -> None:
    tree = RenewableMetadataStore(world.open)
    world.is_away = True
    with pytest.raises(MetadataStoreUnavailableError, match="nobody answers"):
        tree.renew()
    for name, arguments, named in CALLS:
        with pytest.raises(MetadataStoreUnavailableError, match="no session"):
            getattr(tree, name)(*arguments, **named)
    for name in ("session_id", "session_timeout_s", "session"):
        with pytest.raises(MetadataStoreUnavailableError, match="no session"):
            getattr(tree, name)
    assert world.sessions[0].asked == []


def test_session_is_opened_when_it_is_tried_again_and_the_lost_one_is_closed_once(world: World) -> None:
    tree = RenewableMetadataStore(world.open)
    world.is_away = True
    for _ in range(2):
        with pytest.raises(MetadataStoreUnavailableError):
            tree.renew()
    tree.close()  # there is nothing to close
    world.is_away = False
    tree.renew()
    assert tree.session_id == 2
    assert world.events == ["open 1", "close 1", "refuse", "refuse", "open 2"]


def test_tree_that_cannot_be_opened_at_first_is_not_made(world: World) -> None:
    world.is_away = True
    with pytest.raises(MetadataStoreUnavailableError, match="nobody answers"):
        RenewableMetadataStore(world.open)


def test_ephemeral_nodes_go_with_the_session_and_a_closed_tree_says_so(
    new_session: Callable[[], MetadataStore],
) -> None:
    tree = RenewableMetadataStore(new_session)
    tree.create("/mine", ephemeral=True)
    tree.create("/kept", b"data")
    tree.renew()
    assert tree.exists("/mine") is None
    assert tree.get("/kept").data == b"data"
    tree.close()
    with pytest.raises(ClosedError):
        tree.get("/kept")
