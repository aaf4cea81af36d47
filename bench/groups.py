"""The cost of consumer groups for a broker: commits per second, the latency of other clients, and a start with many
groups.

    python -m bench.groups                  both scenarios, a few minutes
    python -m bench.groups commits --rounds 5
    python -m bench.groups many --groups 100000
    python -m bench.groups --json FILE      also writes the figures as data

- `commits`: each client commits an offset of its own group, and commits again as soon as the broker responds. At the
same time, another client sends ApiVersions every 5 ms (as in `bench.stalls`).
- `many`: many groups with one offset each. The broker is restarted, and a client requests offsets until the broker has
loaded all groups.

All clients run in this process, on the broker's machine.
"""

from __future__ import annotations

import itertools
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.errors import ErrorCode
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.find_coordinator import GROUP_KEY, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bench.arena import fresh_folder
from bench.broker_process import MeasuredBroker
from bench.figures import interruptible, parent_of, parser_of, show
from bench.stalls.connection import Connection, Deadline, frame
from bench.stalls.pinger import Pinger
from bench.stalls.stage import TOPIC, create_topics_request
from bench.tables import table

CLIENTS = 50
COMMITTING_S = 5.0
GROUPS = 100_000
PIPELINED = 1_000
LIMIT_S = 600.0
VERSION = 8
ANSWER_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run."""

    scenario: str
    commits_per_s: float
    broker_cpu_us: float
    """The broker's CPU time per commit."""
    worst_ms: float
    p99_ms: float
    """The 99th percentile of the other client's latencies."""
    groups: int = 0
    ready_s: float = 0.0
    loaded_s: float = 0.0
    """The time from the start of the process until the broker lists all groups."""
    memory_mib: float = 0.0


def commit_request(group_id: str) -> bytes:
    """Return the frame of a commit request."""
    at_5 = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[at_5])]
    return frame(OffsetCommitRequest(group_id=group_id, topics=topics), VERSION)


def measure_commits(
    folder: Path, committing_s: float = COMMITTING_S, environment: Mapping[str, str] | None = None
) -> Figures:
    """Send commits with many clients for some seconds.

    :param environment: variables of the broker in addition to the environment of this process.
    """
    deadline = Deadline(LIMIT_S)
    with MeasuredBroker(folder, environment=environment) as broker:
        _prepare(broker, deadline)
        clients = _Clients(broker.port)
        clients.run(0.5)
        cpu_s = broker.cpu_s
        with Pinger(broker.port) as pinger:
            begun_s = time.perf_counter()
            commits = clients.run(committing_s)
            seconds = time.perf_counter() - begun_s
            pings = pinger.finish()
        cpu_s = broker.cpu_s - cpu_s
        clients.close()
    return Figures("commits", commits / seconds, cpu_s / commits * 1e6, pings.worst_ms, pings.p99_ms)


def measure_many(folder: Path, count: int) -> Figures:
    """Commit an offset for each of many groups, restart the broker, and measure the time to load the groups."""
    deadline = Deadline(LIMIT_S)
    with MeasuredBroker(folder) as broker:
        _prepare(broker, deadline)
        connection = Connection(broker.port, deadline)
        cpu_s = broker.cpu_s
        with Pinger(broker.port) as pinger:
            begun_s = time.perf_counter()
            for first in range(0, count, PIPELINED):
                names = [f"group-{number}" for number in range(first, min(count, first + PIPELINED))]
                connection.pipeline(b"".join(map(commit_request, names)), len(names))
            seconds = time.perf_counter() - begun_s
            pings = pinger.finish()
        cpu_s = broker.cpu_s - cpu_s
    with MeasuredBroker(folder) as broker:
        begun_s = time.perf_counter()
        _wait_for_groups(broker.port, count, deadline)
        loaded_s = broker.ready_s + time.perf_counter() - begun_s
        ready_s, memory_mib = broker.ready_s, broker.memory_mib
    cpu_us = cpu_s / count * 1e6
    return Figures("many", count / seconds, cpu_us, pings.worst_ms, pings.p99_ms, count, ready_s, loaded_s, memory_mib)


def _prepare(broker: MeasuredBroker, deadline: Deadline) -> None:
    connection = Connection(broker.port, deadline)
    connection.ask(create_topics_request([TOPIC]), 2, CreateTopicsResponse)
    connection.ask(FindCoordinatorRequest(key="group", key_type=GROUP_KEY), 1, FindCoordinatorResponse)
    connection.close()


def _wait_for_groups(port: int, count: int, deadline: Deadline) -> None:
    connection = Connection(port, deadline)
    request = frame(ListGroupsRequest(), 0)
    while True:
        connection.send(request)
        answer = decode_response(ListGroupsResponse, 0, connection.receive())
        if answer.error_code == ErrorCode.NONE:
            break
        time.sleep(0.02)
    connection.close()
    if len(answer.groups) != count:
        raise RuntimeError(f"the broker lists {len(answer.groups)} of {count} groups")


class _Clients:
    """Clients that send the next commit as soon as they get a response."""

    def __init__(self, port: int) -> None:
        self._requests: dict[int, bytes] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        for number in range(CLIENTS):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[sock.fileno()] = sock
            self._requests[sock.fileno()] = commit_request(f"group-{number}")
            self._poll.register(sock.fileno(), select.EPOLLIN)

    def run(self, seconds: float) -> int:
        """Send commits for some seconds. Return the number of responses.

        :raises RuntimeError: if the broker rejects a commit.
        """
        for number, sock in self._sockets.items():
            sock.sendall(self._requests[number])
        ends_s = time.perf_counter() + seconds
        answered, waiting = 0, len(self._sockets)
        answer = b""
        while waiting:
            is_over = time.perf_counter() >= ends_s
            for number, _ in self._poll.poll():
                sock = self._sockets[number]
                answer = sock.recv(ANSWER_BYTES)
                answered += 1
                if is_over:
                    waiting -= 1
                else:
                    sock.send(self._requests[number])
        response = decode_response(OffsetCommitResponse, VERSION, answer[4:])
        if code := response.topics[0].partitions[0].error_code:
            raise RuntimeError(f"the broker rejected a commit: {ErrorCode(code).name}")
        return answered

    def close(self) -> None:
        self._poll.close()
        for sock in self._sockets.values():
            sock.close()


def table_lines(runs: Sequence[Figures]) -> list[str]:
    header = [
        "scenario",
        "commits/s",
        "CPU us/commit",
        "worst wait ms",
        "p99 ms",
        "groups",
        "ready s",
        "loaded s",
        "MiB",
    ]
    rows = [
        [
            run.scenario,
            f"{run.commits_per_s:,.0f}",
            f"{run.broker_cpu_us:.0f}",
            f"{run.worst_ms:.1f}",
            f"{run.p99_ms:.1f}",
            f"{run.groups:,}" if run.groups else "",
            f"{run.ready_s:.2f}" if run.groups else "",
            f"{run.loaded_s:.2f}" if run.groups else "",
            f"{run.memory_mib:.0f}" if run.groups else "",
        ]
        for run in runs
    ]
    return list(table(header, rows, left=1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the chosen scenarios."""
    parser = parser_of("bench.groups", __doc__)
    parser.add_argument("scenarios", nargs="*", choices=["commits", "many", []], help="commits, many [both]")
    parser.add_argument("--rounds", type=int, default=1, help="number of rounds [1]")
    parser.add_argument("--groups", type=int, default=GROUPS, help=f"number of groups in `many` [{GROUPS}]")
    asked = parser.parse_args(arguments)
    parent = parent_of(asked)
    scenarios: dict[str, Callable[[Path], Figures]] = {
        "commits": measure_commits,
        "many": lambda folder: measure_many(folder, asked.groups),
    }
    runs: list[Figures] = []
    with interruptible():
        for _, name in itertools.product(range(asked.rounds), asked.scenarios or scenarios):
            with fresh_folder(parent) as folder:
                runs.append(scenarios[name](folder))
            sys.stderr.write(f"{runs[-1]}\n")
    show(asked, "bench.groups", table_lines(runs), runs)


if __name__ == "__main__":
    main()
