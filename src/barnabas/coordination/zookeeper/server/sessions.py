"""Who is alive: sessions with a timeout, by the time at which something was heard of them. No I/O.

A session outlives its connections: who knows its id and password goes on with it from another one, and the connection
before is ended then. One of which nothing was heard for its timeout is over. Time in which this server itself stood
still counts for nobody: it cannot say that it has heard nothing. Facts: ZooKeeper programmer's guide, "ZooKeeper
Sessions".

All times are monotonic seconds. Not thread-safe.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from barnabas.coordination.node_table import KeptSession

TIMEOUT_MS_MIN = 1_000
TIMEOUT_MS_MAX = 300_000
"""What clients ask for is brought within these."""
SESSIONS_MAX = 1_000
CONNECTIONS_SETTING = "zookeeper.listener.max.client.cnxns"
SESSIONS_PER_CONNECTION = 4
"""How many sessions clients of one address may have for each connection that they may have: sessions of clients that
were killed last for their timeouts."""
STOOD_STILL_S = 0.5
"""A sweep that comes so much later than the one before was late because the process did not run."""

_ID_BITS_OF_TIME = 16
"""An id begins with the wall clock's milliseconds, so that no two lives of a broker give out the same one."""


@dataclass(slots=True)
class _Living:
    kept: KeptSession
    deadline_s: float
    host: str | None = None
    """Of the client that began it; None where this server has found the session."""
    owns_nodes: bool = False
    """Whether it has made ephemeral nodes."""

    def hear(self, now_s: float) -> None:
        self.deadline_s = now_s + self.kept.timeout_ms / 1000


class Sessions:
    """All sessions of a server.

    :param kept: those that were alive when it stopped; they have their whole timeout to come back.
    :param new_password: makes 16 random bytes.
    :param per_host_max: how many sessions clients of one address may have, of those that this server began.
    """

    def __init__(
        self,
        kept: Iterable[KeptSession],
        now_s: float,
        new_password: Callable[[], bytes],
        per_host_max: int = SESSIONS_MAX,
    ) -> None:
        self._per_host_max = per_host_max
        self._of_host: Counter[str] = Counter()
        self._new_password = new_password
        self._swept_s = now_s
        self._living = {each.id: _Living(each, 0.0) for each in kept}
        self._last_id = max(self._living, default=0)
        for each in self._living.values():
            each.hear(now_s)

    def __len__(self) -> int:
        return len(self._living)

    def open(self, timeout_ms: int, now_s: float, time_ms: int, host: str = "") -> KeptSession | str:
        """Begin a session; or return why there may not be another one.

        :param timeout_ms: what the client asks for; the session says what it gets.
        :param time_ms: wall time.
        :param host: the client's address.
        """
        if len(self._living) >= SESSIONS_MAX:
            return f"{SESSIONS_MAX} sessions are open, and there may be no more"
        if self._of_host[host] >= self._per_host_max:
            return (
                f"clients of {host} have {self._per_host_max} sessions, and may have no more"
                f" ({CONNECTIONS_SETTING} times {SESSIONS_PER_CONNECTION})"
            )
        self._of_host[host] += 1
        self._last_id = max(self._last_id + 1, time_ms << _ID_BITS_OF_TIME)
        granted_ms = min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        session = KeptSession(self._last_id, self._new_password(), granted_ms)
        self._living[session.id] = living = _Living(session, 0.0, host)
        living.hear(now_s)
        return session

    def find(self, session_id: int, password: bytes, now_s: float) -> KeptSession | None:
        """Return a session that is alive, and hear of it; None: it is over, or this is not its password."""
        living = self._living.get(session_id)
        if living is None or not hmac.compare_digest(living.kept.password, password):
            return None
        living.hear(now_s)
        return living.kept

    def note_owner(self, session_id: int) -> None:
        """Note that a session has made an ephemeral node."""
        if living := self._living.get(session_id):
            living.owns_nodes = True

    def give_up_idle(self, host: str, connected: Container[int]) -> int | None:
        """Forget the session of this address that is missed least, and return its id; None: there is none.

        It has no connection. Sessions without ephemeral nodes go first, and of these the one that was silent longest.

        :param connected: the sessions that have a connection.
        """
        idle = [
            (living.owns_nodes, living.deadline_s - living.kept.timeout_ms / 1000, session_id)
            for session_id, living in self._living.items()
            if living.host == host and session_id not in connected
        ]
        if not idle:
            return None
        session_id = min(idle)[-1]
        self.end(session_id)
        return session_id

    def hear(self, session_id: int, now_s: float) -> None:
        """Note that something was heard of a session; nothing where it is over."""
        if living := self._living.get(session_id):
            living.hear(now_s)

    def end(self, session_id: int) -> None:
        """Forget a session."""
        living = self._living.pop(session_id, None)
        if living is None or living.host is None:
            return
        self._of_host[living.host] -= 1
        if not self._of_host[living.host]:
            del self._of_host[living.host]

    def sweep(self, now_s: float, interval_s: float) -> list[int]:
        """Forget the sessions that are over, and return their ids. To be called every `interval_s`."""
        late_s = now_s - self._swept_s - interval_s
        self._swept_s = now_s
        if late_s > STOOD_STILL_S:
            for living in self._living.values():
                living.deadline_s += late_s
        over = [session_id for session_id, living in self._living.items() if living.deadline_s < now_s]
        for session_id in over:
            self.end(session_id)
        return over
