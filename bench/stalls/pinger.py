"""The normal client: it sends ApiVersions to a broker every 5 ms and records the latencies.

    python -m bench.stalls.pinger PORT

The loop is open: a ping is due every 5 ms even if earlier pings have no response, and its latency starts at its due
time. So a stall of one second affects 200 pings. The program prints `ready` after its start. When its input ends, it
stops sending, waits briefly for outstanding responses, and prints a line of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from barnabas.net.stream import FrameReader
from barnabas.protocol.codec import request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from bench.processes import ending_with_us
from bench.stalls.pings import INTERVAL_S, Pings, summarise

WARM_UP_PINGS = 50
ANSWER_LIMIT_S = 1.0
"""The maximum wait for responses after the last ping, in seconds."""
RESULT_LIMIT_S = 10.0
ANSWER_BYTES_MAX = 1024 * 1024
PRIORITY = -10
"""The niceness of the pinger, see nice(2). It needs privileges. If the pinger had to wait for a core, the latency would
not be a property of the broker.
"""

PING = b"".join(bytes(memoryview(chunk)) for chunk in request_frame(ApiVersionsRequest(), 0, 1, "pinger"))  # type: ignore[arg-type]


class Window:
    """Pings on one connection."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = FrameReader(ANSWER_BYTES_MAX)
        self._unsent = bytearray()
        self._waiting: deque[float] = deque()
        self._latencies_ms: list[float] = []
        self._is_open = True
        self._warm_up()

    def _warm_up(self) -> None:
        for _ in range(WARM_UP_PINGS):
            self._waiting.append(time.perf_counter())
            self._sock.sendall(PING)
            while self._waiting:
                self._receive()
        self._latencies_ms.clear()
        self._sock.setblocking(False)

    def run(self) -> Pings:
        """Ping until the input ends."""
        due_s = time.perf_counter()
        inputs: list[Any] = [self._sock, sys.stdin]
        while self._is_open:
            now_s = time.perf_counter()
            while due_s <= now_s:
                self._send(due_s)
                due_s += INTERVAL_S
            readable, _, _ = select.select(inputs, [], [], max(0.0, due_s - time.perf_counter()))
            if self._sock in readable:
                self._receive()
            if sys.stdin in readable:
                break
        self._await_answers()
        return self._result()

    def _send(self, due_s: float) -> None:
        self._waiting.append(due_s)
        self._unsent += PING
        with contextlib.suppress(BlockingIOError):
            try:
                del self._unsent[: self._sock.send(self._unsent)]
            except ConnectionError:
                self._is_open = False

    def _receive(self) -> None:
        try:
            data = self._sock.recv(ANSWER_BYTES_MAX)
        except ConnectionError:
            data = b""
        if not data:
            self._is_open = False
        now_s = time.perf_counter()
        for _ in self._answers.feed(data):
            self._latencies_ms.append((now_s - self._waiting.popleft()) * 1000)

    def _await_answers(self) -> None:
        limit_s = time.perf_counter() + ANSWER_LIMIT_S
        while self._is_open and self._waiting and (left_s := limit_s - time.perf_counter()) > 0:
            if select.select([self._sock], [], [], left_s)[0]:
                self._receive()

    def _result(self) -> Pings:
        now_s = time.perf_counter()
        return summarise(self._latencies_ms, [(now_s - due_s) * 1000 for due_s in self._waiting])


class Pinger:
    """The benchmark's view of the pinger process."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [*ending_with_us(), sys.executable, "-m", "bench.stalls.pinger", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout
        if self._process.stdout.readline() != "ready\n":
            self._process.kill()
            raise RuntimeError("the pinger did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def finish(self) -> Pings:
        """Stop the pinger. Return the latencies of its pings."""
        output, _ = self._process.communicate(timeout=RESULT_LIMIT_S)
        return Pings(**json.loads(output))


def main(arguments: Sequence[str]) -> int:
    """Ping until the input ends, and print the result."""
    with contextlib.suppress(OSError):
        os.nice(PRIORITY)
    window = Window(int(arguments[0]))
    gc.collect()
    gc.disable()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    pings = window.run()
    sys.stdout.write(json.dumps({name: getattr(pings, name) for name in Pings.__slots__}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
