"""The live sessions of the server, each with the time of its last request or ping. No I/O.

A session outlives its connections: a client with its id and password resumes it on a new connection, and the server
closes the old connection. A session ends after its timeout without a request or ping. The timeouts are extended by the
time in which this server did not run, because it could not receive requests then. Source: ZooKeeper programmer's guide,
"ZooKeeper Sessions".

Unless stated otherwise, times are monotonic seconds. Not thread-safe.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from barnabas.coordination.node_table import KeptSession

TIMEOUT_MS_MIN = 1_000
TIMEOUT_MS_MAX = 300_000
"""The limits of session timeouts. A requested timeout outside these limits is replaced with the nearest limit."""
SESSIONS_MAX = 1_000
CONNECTIONS_SETTING = "zookeeper.listener.max.client.cnxns"
SESSIONS_PER_CONNECTION = 4
"""The number of sessions that an address may have for each connection that it may have.

The number is larger than 1, because the sessions of killed clients exist until their timeout.
"""
STOOD_STILL_S = 0.5
"""The minimum delay of a sweep. If a sweep is later than this, the process did not run in between."""

_ID_BITS_OF_TIME = 16
"""The number of low-order bits in a session id.

The bits above them are the wall-clock time, so the ids of different runs are distinct.
"""


@dataclass(slots=True)
class _Living:
    kept: KeptSession
    deadline_s: float
    host: str | None = None
    """The address of the client that started the session; None for a session from an earlier run."""
    owns_nodes: bool = False
    """True if the session has created ephemeral nodes."""

    def hear(self, now_s: float) -> None:
        self.deadline_s = now_s + self.kept.timeout_ms / 1000


class Sessions:
    """All sessions of a server.

    :param kept: the sessions that were alive when the server stopped. Their timeouts restart now.
    :param new_password: returns 16 random bytes.
    :param per_host_max: the maximum number of sessions of one address. Sessions from an earlier run are not counted.
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
        """Start a session, or return the reason why no further session is permitted.

        :param timeout_ms: the requested session timeout. The result contains the granted timeout.
        :param time_ms: wall-clock time.
        :param host: the client's address.
        """
        if len(self._living) >= SESSIONS_MAX:
            return f"the server has reached its limit of {SESSIONS_MAX} sessions"
        if self._of_host[host] >= self._per_host_max:
            return (
                f"clients of {host} have reached their limit of {self._per_host_max} sessions"
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
        """Return a live session and restart its timeout.

        Return None if the session has ended or the password is wrong.
        """
        living = self._living.get(session_id)
        if living is None or not hmac.compare_digest(living.kept.password, password):
            return None
        living.hear(now_s)
        return living.kept

    def note_owner(self, session_id: int) -> None:
        """Record that a session has created an ephemeral node."""
        if living := self._living.get(session_id):
            living.owns_nodes = True

    def give_up_idle(self, host: str, connected: Container[int]) -> int | None:
        """End one session of an address that has no connection; return its id. Return None if there is no such session.

        Sessions without ephemeral nodes are ended first. Among equal sessions, the session without requests or pings
        for the longest time is ended.

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
        """Restart the timeout of a session after a request or ping; ignore an ended session."""
        if living := self._living.get(session_id):
            living.hear(now_s)

    def end(self, session_id: int) -> None:
        """Remove a session."""
        living = self._living.pop(session_id, None)
        if living is None or living.host is None:
            return
        self._of_host[living.host] -= 1
        if not self._of_host[living.host]:
            del self._of_host[living.host]

    def sweep(self, now_s: float, interval_s: float) -> list[int]:
        """Remove the expired sessions and return their ids. The caller must call this method every `interval_s`."""
        late_s = now_s - self._swept_s - interval_s
        self._swept_s = now_s
        if late_s > STOOD_STILL_S:
            for living in self._living.values():
                living.deadline_s += late_s
        over = [session_id for session_id, living in self._living.items() if living.deadline_s < now_s]
        for session_id in over:
            self.end(session_id)
        return over
