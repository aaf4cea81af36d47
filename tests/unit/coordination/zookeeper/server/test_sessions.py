"""Sessions live as long as something is heard of them, and no longer; a server that stood still says nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from barnabas.coordination.node_table import KeptSession
from barnabas.coordination.zookeeper.server.sessions import SESSIONS_MAX, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, Sessions

INTERVAL_S = 0.25
WALL_MS = 1_700_000_000_000


def sessions_at(now_s: float, kept: Iterable[KeptSession] = ()) -> Sessions:
    numbers = itertools.count(1)
    return Sessions(kept, now_s, lambda: b"%016d" % next(numbers))


def sweep_until(sessions: Sessions, begin_s: float, end_s: float) -> dict[int, float]:
    """Sweep at every interval; return when which session was over."""
    over = {}
    for number in range(1, int((end_s - begin_s) / INTERVAL_S) + 1):
        now_s = begin_s + number * INTERVAL_S
        over.update(dict.fromkeys(sessions.sweep(now_s, INTERVAL_S), now_s))
    return over


def opened(sessions: Sessions, timeout_ms: int, now_s: float) -> KeptSession:
    session = sessions.open(timeout_ms, now_s, WALL_MS)
    assert session is not None
    return session


def test_session_of_which_nothing_is_heard_is_over_after_its_timeout_and_not_before() -> None:
    sessions = sessions_at(0.0)
    silent, heard = opened(sessions, 4_000, 0.0), opened(sessions, 4_000, 0.0)
    assert sweep_until(sessions, 0.0, 3.0) == {}
    sessions.hear(heard.id, 3.0)
    assert sweep_until(sessions, 3.0, 10.0) == {silent.id: 4.25, heard.id: 7.25}
    assert len(sessions) == 0


def test_who_knows_the_password_goes_on_with_a_session() -> None:
    sessions = sessions_at(0.0)
    session = opened(sessions, 4_000, 0.0)
    assert sessions.find(session.id, session.password, 3.0) == session
    assert sessions.find(session.id, b"x" * 16, 6.9) is None
    assert sessions.find(session.id, b"", 6.9) is None
    assert sessions.find(session.id + 1, session.password, 6.9) is None
    assert sweep_until(sessions, 0.0, 10.0) == {session.id: 7.25}, "a wrong password is no sign of life"
    assert sessions.find(session.id, session.password, 10.0) is None


def test_session_that_was_closed_is_not_over_once_more() -> None:
    sessions = sessions_at(0.0)
    session = opened(sessions, 4_000, 0.0)
    sessions.end(session.id)
    sessions.hear(session.id, 1.0)
    assert sweep_until(sessions, 0.0, 10.0) == {}


@pytest.mark.parametrize(
    ("asked_ms", "granted_ms"),
    [(-1, TIMEOUT_MS_MIN), (0, TIMEOUT_MS_MIN), (9_000, 9_000), (2**31 - 1, TIMEOUT_MS_MAX)],
)
def test_timeouts_have_bounds(asked_ms: int, granted_ms: int) -> None:
    assert opened(sessions_at(0.0), asked_ms, 0.0).timeout_ms == granted_ms


def test_there_are_no_more_sessions_than_there_may_be() -> None:
    sessions = sessions_at(0.0)
    first = opened(sessions, 4_000, 0.0)
    for _ in range(SESSIONS_MAX - 1):
        opened(sessions, 4_000, 0.0)
    assert "has reached its limit of" in str(sessions.open(4_000, 0.0, WALL_MS))
    sessions.end(first.id)
    assert not isinstance(sessions.open(4_000, 0.0, WALL_MS), str)


def test_sessions_of_one_address_are_bounded_until_they_end() -> None:
    sessions = Sessions([], 0.0, lambda: b"p" * 16, per_host_max=2)
    first, second = (sessions.open(4_000, 0.0, WALL_MS, "10.0.0.1") for _ in range(2))
    assert isinstance(first, KeptSession)
    assert isinstance(second, KeptSession)
    refusal = sessions.open(4_000, 0.0, WALL_MS, "10.0.0.1")
    assert "clients of 10.0.0.1 have reached their limit of 2 sessions" in str(refusal)
    assert isinstance(sessions.open(4_000, 3.0, WALL_MS, "10.0.0.2"), KeptSession)
    sessions.end(first.id)
    assert isinstance(sessions.open(4_000, 3.0, WALL_MS, "10.0.0.1"), KeptSession)
    assert sessions.sweep(5.0, 5.0) == [second.id]
    assert isinstance(sessions.open(4_000, 5.0, WALL_MS, "10.0.0.1"), KeptSession)


def test_sessions_of_the_life_before_have_their_whole_timeout_to_come_back() -> None:
    before = opened(sessions_at(0.0), 4_000, 0.0)
    sessions = sessions_at(100.0, [before])
    assert sessions.find(before.id, before.password, 101.0) == before
    assert sweep_until(sessions, 100.0, 110.0) == {before.id: 105.25}


def test_ids_are_not_given_out_again_though_the_wall_clock_goes_back() -> None:
    before = opened(sessions_at(0.0), 4_000, 0.0)
    sessions = sessions_at(0.0, [before])
    ids = [before.id]
    for time_ms in (WALL_MS - 5_000, WALL_MS, WALL_MS + 1):
        session = sessions.open(4_000, 0.0, time_ms)
        assert session is not None
        ids.append(session.id)
    assert ids == sorted(set(ids))
    assert 0 < ids[-1] < 2**63


def test_time_in_which_the_server_stood_still_counts_for_nobody() -> None:
    sessions = sessions_at(0.0)
    session = opened(sessions, 4_000, 0.0)
    assert sweep_until(sessions, 0.0, 2.0) == {}
    assert sessions.sweep(62.0, INTERVAL_S) == [], "a minute without a sweep: nobody was listened to"
    assert sweep_until(sessions, 62.0, 70.0) == {session.id: pytest.approx(64.25, abs=INTERVAL_S)}
