"""The signed-in users. Passwords stay in memory, for eight hours at most."""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.console.audits import Audits, NewAudits
from barnabas.console.cluster_view import ClusterView, NewView
from barnabas.console.schemas import Schemas

SESSION_S_MAX = 8 * 3600.0
SESSIONS_MAX = 50
"""The maximum number of sessions. Above it, the oldest session ends."""
SESSIONS_OF_USER_MAX = 5
"""The maximum number of sessions of one user. Above it, the oldest session of this user ends."""
ID_BYTES = 32


@dataclass(slots=True)
class Session:
    """A signed-in user, or everybody if the brokers do not authenticate users.

    :ivar token: the token that each form of the session contains, against requests from other sites.
    """

    id: str
    token: str
    user: str
    view: ClusterView
    ends_s: float
    audits: Audits
    schemas: Schemas | None = None


class Sessions:
    """The sessions, by id.

    :param new_audits: returns the audits of a user.
    :param random_bytes: returns random bytes.
    :param now_s: returns monotonic seconds.
    """

    def __init__(
        self,
        new_view: NewView,
        new_audits: NewAudits,
        random_bytes: Callable[[int], bytes],
        now_s: Callable[[], float],
    ) -> None:
        self._new_view = new_view
        self._new_audits = new_audits
        self._random_bytes = random_bytes
        self._now_s = now_s
        self._sessions: dict[str, Session] = {}

    def find(self, session_id: str) -> Session | None:
        """Return the session with an id; None if there is none, or if it has ended."""
        given = session_id.encode("utf-8", "replace")  # compare_digest compares only ASCII texts
        of_id = (each for each in self._sessions.values() if hmac.compare_digest(each.id.encode(), given))
        found = next(of_id, None)
        return None if found is None or self._now_s() >= found.ends_s else found

    async def begin(
        self, user: str, settings: Mapping[str, str], schemas: Schemas | None = None, *, ends: bool = True
    ) -> Session:
        """Sign in: connect to the brokers with the credentials of a user.

        :param ends: False for a session that lasts as long as the console.
        :raises BarnabasError: the credentials are wrong, or no broker can be reached.
        """
        view = self._new_view(settings)
        try:
            await view.start()
        except BaseException:
            await view.close()
            raise
        await self.end_old()
        of_user = [each for each in self._sessions.values() if each.user == user]
        for each in of_user[: max(0, len(of_user) - SESSIONS_OF_USER_MAX + 1)]:
            await self.end(each)
        ends_s = self._now_s() + SESSION_S_MAX if ends else math.inf
        audits = self._new_audits(settings)
        session = Session(self._new_id(), self._new_id(), user, view, ends_s, audits, schemas)
        self._sessions[session.id] = session
        return session

    async def end(self, session: Session) -> None:
        """Sign out."""
        if self._sessions.pop(session.id, None) is not None:
            await session.audits.close()
            await session.view.close()

    async def end_old(self) -> None:
        """End the sessions that are too old, and the oldest one if there are too many."""
        now_s = self._now_s()
        old = [each for each in self._sessions.values() if now_s >= each.ends_s]
        if len(self._sessions) - len(old) >= SESSIONS_MAX:
            old.append(next(each for each in self._sessions.values() if each not in old))
        for each in old:
            await self.end(each)

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(self.end(each) for each in list(self._sessions.values())))

    def _new_id(self) -> str:
        return self._random_bytes(ID_BYTES).hex()
