"""Three ZooKeeper servers as processes, of which one leads: killed, stopped, all down and up, and sessions expired.

For slow and broken ways between brokers and servers there are links.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from kazoo.client import KazooClient

from barnabas.coordination.zookeeper.servers import HOST
from tests.support.reading import wait_until
from tests.support.zookeeper_servers import sessions, start_servers

ANSWER_S = 2.0
"""For the words that a server is asked; one that is stopped says nothing."""
CONNECT_S = 60.0
PASSWORD_SECRET = 0xB3415C00
"""ZooKeeper makes a session's password from its id and this (`ZooKeeperServer.superSecret`)."""
PASSWORD_BYTES = 16


class Ensemble:
    """Three servers. Used from one thread.

    :param folder: of their data.
    """

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.servers = start_servers(folder, count)
        self._paused: set[int] = set()

    @property
    def address(self) -> str:
        """All servers, as `zookeeper.connect` takes them."""
        return self.servers.address

    def leader(self) -> int:
        """Wait until one of the servers leads, and return its number."""
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [number for number in self._alive() if self.mode(number) == "leader"]
            return bool(found)

        wait_until(is_led, "a ZooKeeper server leads")
        return found[0]

    def followers(self) -> list[int]:
        """Return all servers that are alive and do not lead."""
        leader = self.leader()
        return [number for number in self._alive() if number != leader]

    def mode(self, number: int) -> str:
        """Return what a server says that it is: leader, follower; empty while it serves nobody."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HOST, self.servers.ports[number]), ANSWER_S) as asked,
        ):
            asked.sendall(b"srvr")
            with asked.makefile("r") as answer:
                return next((line.split()[1] for line in answer if line.startswith("Mode:")), "")
        return ""

    def kill(self, number: int) -> None:
        """Kill a server as `kill -9` does."""
        self.servers.kill(number)
        self._paused.discard(number)

    def pause(self, number: int) -> None:
        """Let a server stand where it is (SIGSTOP): its connections stay, and it answers nothing."""
        self.servers.suspend(number)
        self._paused.add(number)

    def go_on(self, number: int) -> None:
        """Let a paused server go on."""
        self.servers.resume(number)
        self._paused.discard(number)

    def kill_leader(self) -> int:
        """Kill the one that leads, and return its number."""
        leader = self.leader()
        self.kill(leader)
        return leader

    def pause_leader(self) -> int:
        """Let the one that leads stand, and return its number. The others choose another one."""
        leader = self.leader()
        self.pause(leader)
        return leader

    def down(self) -> None:
        """Kill all servers that run."""
        for number, pid in enumerate(self.servers.pids):
            if pid is not None:
                self.kill(number)

    def heal(self) -> None:
        """Let all servers run, and wait until all of them serve."""
        for number in list(self._paused):
            self.go_on(number)
        self.servers.start()

    def sessions(self, chroot: str) -> set[int]:
        """Return the sessions that own a node below a path, such as those of all brokers of a cluster."""
        with sessions(self.address + chroot) as opened:
            return {node.stat.owner for node in opened.open().subtree("/").values() if node.stat.owner}

    def expire(self, session: int) -> None:
        """End a session as if its owner had not been heard of in time: the owner learns of it from a server."""
        # Whoever knows a session's password may go on with it on another connection, and close it.
        thief = KazooClient(self.address, client_id=(session, password_of(session)))
        thief.start(CONNECT_S)
        thief.stop()
        thief.close()

    def expire_all(self, chroot: str) -> set[int]:
        """End all sessions that own a node below a path, and return them."""
        found = self.sessions(chroot)
        for each in found:
            self.expire(each)
        return found

    def close(self) -> None:
        """End all servers, however they stand."""
        self.servers.stop()

    def _alive(self) -> Iterator[int]:
        for number, pid in enumerate(self.servers.pids):
            if pid is not None and number not in self._paused:
                yield number


def password_of(session: int) -> bytes:
    """Return the password of a session: what Java's `Random(session ^ secret).nextBytes` gives.

    >>> password_of(0x100012345670000).hex()
    '4be494d27cc739baa123244a251a7415'
    """
    state = (session ^ PASSWORD_SECRET ^ 0x5DEECE66D) & 0xFFFFFFFFFFFF
    password = b""
    while len(password) < PASSWORD_BYTES:
        state = (state * 0x5DEECE66D + 0xB) & 0xFFFFFFFFFFFF
        password += (state >> 16).to_bytes(4, "little")
    return password
