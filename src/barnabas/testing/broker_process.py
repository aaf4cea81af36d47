"""The production broker as a child process, with faults on request."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from barnabas.addresses import host_port
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.net.free_port import is_free, lasting_ports
from barnabas.testing.child_group import ChildGroup
from barnabas.testing.file_faults import OPERATIONS, WRITES, FileFault

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.admin.topics import TopicDescription

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
"""The default of the maximum time in seconds until a broker is ready. It usually needs less than half a second."""
STOP_TIMEOUT_S = 30.0
ORDER_TIMEOUT_S = 30.0
PORT_ATTEMPTS = 5
LOG_TAIL_CHARS = 4_000
READY = "ready "

TEST_SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "log.retention.check.interval.ms": "86400000",
}
"""The settings that differ from the defaults: tests with groups may use short sessions, and a test that writes old
timestamps keeps its records."""

ARGUMENTS = frozenset({"port", "data", "log.dir", "log.dirs"})
"""The settings that have an argument of their own."""

_numbers = itertools.count(1)


class BrokerProcessError(BarnabasError):
    """A broker did not start, ended unexpectedly, or did not carry out an order. The message contains its log."""


@cache
def api_key(api: str) -> int:
    """Return the key of an API.

    :param api: the name of the API, such as "Produce".
    :raises ValueError: there is no such API.
    """
    from barnabas.protocol.apis import declared_apis  # noqa: PLC0415 - the import of all messages takes time

    keys = {each.name: key for key, each in declared_apis().items()}
    if api not in keys:
        raise ValueError(f"there is no API {api!r}; the APIs are {', '.join(sorted(keys))}")
    return keys[api]


def error_code(error: ErrorCode | int | str) -> ErrorCode:
    """Return an error code from its name or its number.

    :raises ValueError: Kafka has no such error, or it is NONE.
    """
    try:
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        raise ValueError(f"there is no error {error!r}; use a member of barnabas.ErrorCode, or its name") from None
    if code is ErrorCode.NONE:
        raise ValueError("NONE is not an error")
    return code


class BrokerProcess:
    """A broker in a process of its own, for tests.

    It is the broker of `barnabas up`, with one difference: this object can order faults. The process ends with the
    `with` block, at the latest with the current process, also if that is killed. The address stays the same over
    restarts. Use an object from one thread at a time.

        with BrokerProcess() as broker:
            producer = barnabas.Producer(broker.bootstrap)

    :param settings: broker settings by Kafka's names, such as `{"num.partitions": 3}`. Environment variables
        (`BARNABAS_...`) are ignored. `listeners` replaces `port`; without fixed ports, its addresses change at a
        restart.
    :param port: the port to listen on; 0 for a free port.
    :param data: the log directory. It stays after the end. None for a temporary directory, which is removed.
    :param start_timeout_s: the maximum time in seconds until the broker is ready.
    :param group: the process group of the broker; None for its own. `BrokerCluster` passes its group.
    :raises ValueError: the settings contain the port or the log directory.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data: str | os.PathLike[str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        group: ChildGroup | None = None,
    ) -> None:
        self._settings = {**TEST_SETTINGS, **{name: _as_text(value) for name, value in (settings or {}).items()}}
        if taken := ARGUMENTS.intersection(settings or ()):
            raise ValueError(f"{', '.join(sorted(taken))}: use the arguments port and data instead of the settings")
        self._has_listeners = "listeners" in self._settings
        self._wanted_port = self._port = port
        self._host = HOST
        self._data = None if data is None else Path(data)
        self._start_timeout_s = start_timeout_s
        self._folder: Path | None = None
        self._given_group = self._group = group
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._files: tuple[FileFault, ...] = ()
        self._fault_numbers = itertools.count(1)
        self._order_numbers = itertools.count(1)
        self._cut_ports: set[int] = set()
        self._are_clients_cut = False
        self._is_paused = False
        self._admin: Admin | None = None
        self.is_disturbed = False
        """True after a fault, until `heal`."""

    # -- life ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the broker and wait until it is ready. A running broker continues.

        :raises BrokerProcessError: the broker did not start; the message contains its log.
        """
        if self.is_running:
            return self
        try:
            self.launch()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """Start the process without waiting. `wait_until_ready` must follow. So several brokers start at the same time.

        :raises OSError: the process cannot be started.
        """
        if self._folder is None:
            # The guard of a given group removes the folder of this group only.
            parent = None if self._given_group is None else self._given_group.folder
            self._folder = Path(tempfile.mkdtemp(prefix="barnabas-test-", dir=parent))
        if self._group is None:
            self._group = ChildGroup(self._folder)
        if not self._port and not self._has_listeners:
            self._port = lasting_ports(HOST, 1)[0]
        self._launch()

    def wait_until_ready(self) -> None:
        """Wait until the broker is ready.

        :raises BrokerProcessError: the broker ended, or is not ready in time; the message contains its log.
        """
        deadline_s = SYSTEM_CLOCK.monotonic() + self._start_timeout_s
        for attempt in itertools.count(1):
            line = self._next_line(deadline_s, f"was not ready within {self._start_timeout_s:g} s (start_timeout_s)")
            if line is not None and line.startswith(READY):
                host, _, port = line.removeprefix(READY).rpartition(":")
                self._host, self._port = host.strip("[]"), int(port)
                return
            code = self._reap()
            # Another process may have taken the port since `lasting_ports` has found it.
            is_taken = not self._wanted_port and not self._has_listeners and not is_free(HOST, self._port)
            if not is_taken or attempt >= PORT_ATTEMPTS:
                raise self._error(f"the broker did not start; its exit code is {code}")
            self._port = lasting_ports(HOST, 1)[0]
            self._launch()

    def stop(self) -> None:
        """Stop the broker cleanly, and remove its temporary data. A stopped broker stays stopped."""
        try:
            self._close_admin()
            self._end()
        finally:
            if self._group is not None and self._given_group is None:
                self._group.close()
                self._group = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
            self._forget_faults()

    @property
    def is_running(self) -> bool:
        """True if the process runs, or is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_responsive(self) -> bool:
        """True if the process runs, is not paused, and is not cut off from clients."""
        return self.is_running and not self._is_paused and not self._are_clients_cut

    @property
    def pid(self) -> int:
        """The process id.

        :raises BrokerProcessError: the broker does not run.
        """
        return self._running().pid

    @property
    def port(self) -> int:
        """The port of the broker, which is known after the start."""
        return self._port

    @property
    def bootstrap(self) -> str:
        """The address HOST:PORT of the first listener for clients, which is known after the start."""
        return host_port(self._host, self._port)

    @property
    def data(self) -> Path:
        """The log directory.

        :raises BrokerProcessError: the broker was never started, and its log directory is temporary.
        """
        if self._data is not None:
            return self._data
        if self._folder is None:
            raise BrokerProcessError("a temporary log directory exists from start() to stop() only")
        return self._folder / "data"

    @property
    def brokers(self) -> Mapping[int, BrokerProcess]:
        """This broker by its id, as `BrokerCluster.brokers`."""
        return {int(self._settings.get("broker.id", "0")): self}

    @property
    def log(self) -> str:
        """The log lines of the broker since its first start. Empty after `stop`."""
        return self.log_since(0)

    @property
    def log_size(self) -> int:
        """The size of `log` in bytes."""
        with contextlib.suppress(FileNotFoundError):
            return self._log_file.stat().st_size if self._folder is not None else 0
        return 0

    def log_since(self, size: int) -> str:
        """Return the log lines after an earlier `log_size`.

        :param size: the earlier size in bytes.
        """
        if self.log_size <= size:
            return ""
        with self._log_file.open("rb") as file:
            file.seek(size)
            return file.read().decode(errors="replace")

    # -- topics ----------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str | None = None, partitions: int = 1, settings: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic, and return its name.

        :param name: the name; None for a name that no other topic of this process has.
        :param partitions: the number of partitions.
        :param settings: topic settings by Kafka's names, such as `{"cleanup.policy": "compact"}`.
        :raises ApiError: the broker refuses the topic.
        :raises BrokerProcessError: the broker does not run, or is paused.
        """
        name = name or f"topic-{os.getpid()}-{next(_numbers)}"
        given = {each: _as_text(value) for each, value in (settings or {}).items()}
        self._client().create_topic(name, partitions, config=given)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        :raises ApiError: the broker refuses the deletion.
        """
        self._client().delete_topic(name)

    def describe_topic(self, name: str) -> TopicDescription:
        """Return the partitions of a topic with their leaders and replicas.

        :raises ApiError: the topic does not exist.
        """
        return self._client().describe_topics([name])[0]

    # -- faults ----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the process, as `kill -9` does. `restart` starts it again with its data.

        :raises BrokerProcessError: the broker does not run.
        """
        self.is_disturbed = True
        self._running().kill()
        self._reap()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): its connections stay open, but it does not respond.

        :raises BrokerProcessError: the broker does not run.
        """
        self._running().send_signal(signal.SIGSTOP)
        self.is_disturbed = self._is_paused = True

    def resume(self) -> None:
        """Let a paused process continue (SIGCONT).

        :raises BrokerProcessError: the broker does not run.
        """
        self._running().send_signal(signal.SIGCONT)
        self._is_paused = False

    def restart(self) -> None:
        """Stop the broker cleanly if it runs, and start it again with the same address, data, slow disk and cuts.

        :raises BrokerProcessError: the broker did not start; the message contains its log.
        """
        self._end()
        self.start()

    def fail_next(self, api: str, error: ErrorCode | int | str, count: int = 1) -> None:
        """Let the next requests of an API fail. A failed request has no effect, except that Metadata creates topics.

        Each partition, topic or group in the response has the error, or the whole response if its API has one error
        only. Calls add up: the requests of an earlier call fail first. A fetch that waits for records already, and the
        requests of other brokers, do not fail. `pending_failures` returns the remaining number.

        :param api: the name of the API, such as "Produce", "Fetch", "OffsetCommit" or "Heartbeat".
        :param error: the error, such as `ErrorCode.NOT_LEADER_OR_FOLLOWER`, or its name.
        :param count: the number of requests, at least 1.
        :raises ValueError: there is no such API or error, or the count is below 1.
        :raises BrokerProcessError: the broker does not run, or is paused.
        """
        if count < 1:
            raise ValueError(f"count is {count}; it must be at least 1")
        self.is_disturbed = True
        self._order("fail_next", key=api_key(api), code=int(error_code(error)), count=count)

    def pending_failures(self, api: str) -> int:
        """Return the number of requests of an API that are still to fail.

        :param api: the name of the API, such as "Produce".
        :raises ValueError: there is no such API.
        :raises BrokerProcessError: the broker does not run, or is paused.
        """
        found: dict[str, int] = self._order("failures_left")
        return found.get(str(api_key(api)), 0)

    def slow_disk(self, ms: float = 100.0, operations: Sequence[str] = WRITES) -> None:
        """Let each operation on a file of the log directory take longer, until `heal`.

        :param ms: the additional duration in milliseconds. 0 ends the delay.
        :param operations: the names of the slow operations: writev, fsync, read and others
            (`barnabas.testing.FILE_OPERATIONS`).
        :raises ValueError: there is no such operation, or the duration is negative.
        :raises BrokerProcessError: the broker is paused, or has ended unexpectedly.
        """
        if ms < 0:
            raise ValueError(f"ms is {ms}; it must not be negative")
        kept = tuple(each for each in self._files if each.error)
        self._set_files((*kept, self._file_fault(operations, slow_ms=ms)) if ms else kept)

    def fail_disk(self, error: str = "ENOSPC", operations: Sequence[str] = WRITES) -> None:
        """Let operations on files of the log directory fail, until `heal`. A restart brings back an offline log.

        :param error: the name of an errno: "ENOSPC" for a full disk, "EIO" for a broken one.
        :param operations: the names of the operations that fail.
        :raises ValueError: there is no such operation.
        :raises BrokerProcessError: the broker is paused, or has ended unexpectedly.
        """
        self._set_files((*self._files, self._file_fault(operations, error=error)))

    def cut(self) -> None:
        """Cut the network between the broker and all clients, until `mend`.

        All connections end, and new ones are refused. (A paused broker keeps connections open and does not respond.)

        :raises BrokerProcessError: the broker does not run, or is paused.
        """
        self._cut(self._cut_ports, clients=True)

    def mend(self) -> None:
        """Let clients connect again.

        :raises BrokerProcessError: the broker does not run, is paused, or cannot listen on its address.
        """
        self._cut(self._cut_ports, clients=False)

    def heal(self) -> None:
        """End all faults: the broker runs, responds, and has a fast disk and all its connections.

        :raises BrokerProcessError: the broker did not start; the message contains its log.
        """
        if self.is_running and self._is_paused:
            self.resume()
        self._forget_faults()
        if self.is_running:
            self._order("clear_failures")
            self._order("files", faults=[])
            self._order("cut", ports=[], clients=False)
        else:
            self.start()

    def cut_ports(self, ports: set[int]) -> None:
        """Cut the connections to other brokers at some ports, and no others. `BrokerCluster.cut` uses this method.

        :param ports: the ports of the listeners for brokers.
        :raises BrokerProcessError: the broker is paused, or has ended unexpectedly.
        """
        self._cut(ports, clients=self._are_clients_cut)

    def expire_session(self) -> None:
        """End the session with ZooKeeper, as after its timeout. The broker then registers again.

        :raises BrokerProcessError: the broker has no ZooKeeper, does not run, or is paused.
        """
        self.is_disturbed = True
        self._order("expire_session")

    # -- the process -----------------------------------------------------------------------------------------

    def _launch(self) -> None:
        if self._process is not None:
            self._reap()  # it has ended unexpectedly
        assert self._group is not None
        assert self._folder is not None
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARNABAS_")}
        if codec := os.environ.get("BARNABAS_CODEC"):
            environment["BARNABAS_CODEC"] = codec
        own = {} if self._has_listeners else {"host": HOST, "port": str(self._port)}
        settings = {**own, **self._settings, "data": str(self.data)}
        first = {
            "settings": settings,
            "files": [asdict(each) for each in self._files],
            "cut_ports": sorted(self._cut_ports),
            "are_clients_cut": self._are_clients_cut,
        }
        # -P prevents imports from the current directory.
        command = [sys.executable, "-P", "-m", "barnabas.testing.broker_program"]
        with self._log_file.open("ab") as log:
            process = self._process = self._group.start(command, environment, log)
        self._is_paused = False
        self._write(json.dumps(first))
        lines = self._lines = SimpleQueue()
        Thread(target=_read, args=(process, lines), name="broker output", daemon=True).start()

    @property
    def _log_file(self) -> Path:
        assert self._folder is not None
        return self._folder / "broker.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerProcessError("the broker does not run; start it first")
        if self._process.poll() is not None:
            raise self._error(f"the broker has ended with exit code {self._process.returncode}")
        return self._process

    def _end(self) -> None:
        """Stop the process cleanly, or kill it after `STOP_TIMEOUT_S`."""
        if self._process is None:
            return
        if self._process.poll() is None:
            if self._is_paused:
                self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        self._reap()

    def _reap(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        process = self._process
        assert process is not None
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        self._process = None
        self._is_paused = False
        return code

    def _next_line(self, deadline_s: float, failure: str) -> str | None:
        """Return the next line of output; None at its end.

        :param deadline_s: the time of the monotonic clock until which a line must arrive.
        :param failure: the end of a sentence about the broker, for the error.
        :raises BrokerProcessError: no line in time.
        """
        try:
            return self._lines.get(timeout=max(deadline_s - SYSTEM_CLOCK.monotonic(), 0.0))
        except Empty:
            cause = "it is paused" if self._is_paused else "a busy machine may be the cause"
            raise self._error(f"the broker {failure}; {cause}") from None

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which the missing answer shows
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def _order(self, kind: str, **values: Any) -> Any:
        self._running()
        if self._is_paused:
            raise BrokerProcessError(f"the broker is paused, and cannot carry out {kind!r}; call resume() first")
        number = next(self._order_numbers)
        self._write(json.dumps({"number": number, "order": kind, **values}))
        deadline_s = SYSTEM_CLOCK.monotonic() + ORDER_TIMEOUT_S
        answer: dict[str, Any] = {}
        while answer.get("number") != number:  # a late answer to an earlier order may come first
            line = self._next_line(deadline_s, f"did not carry out {kind!r} within {ORDER_TIMEOUT_S:g} s")
            if line is None:
                raise self._error("the broker ended unexpectedly")
            answer = json.loads(line)
        if "failed" in answer:
            raise self._error(f"the broker cannot carry out {kind!r}: {answer['failed']}")
        return answer["done"]

    def _error(self, message: str) -> BrokerProcessError:
        tail = self.log[-LOG_TAIL_CHARS:].strip()
        return BrokerProcessError(f"{message}. Its log ends with:\n{tail}" if tail else f"{message}. Its log is empty.")

    # -- the state of the faults -----------------------------------------------------------------------------

    def _file_fault(self, operations: Sequence[str], error: str | None = None, slow_ms: float = 0.0) -> FileFault:
        if unknown := set(operations) - set(OPERATIONS):
            raise ValueError(f"no operations: {sorted(unknown)}; the operations are {', '.join(OPERATIONS)}")
        return FileFault(
            next(self._fault_numbers), tuple(operations), f"{self.data.absolute()}/*", error=error, slow_ms=slow_ms
        )

    def _set_files(self, faults: tuple[FileFault, ...]) -> None:
        self._files, self.is_disturbed = faults, True
        if self.is_running:
            self._order("files", faults=[asdict(each) for each in faults])

    def _cut(self, ports: set[int], *, clients: bool) -> None:
        self._cut_ports, self._are_clients_cut, self.is_disturbed = set(ports), clients, True
        if self.is_running:
            self._order("cut", ports=sorted(ports), clients=clients)

    def _forget_faults(self) -> None:
        self._files, self._cut_ports, self._are_clients_cut = (), set(), False
        self.is_disturbed = False

    def _client(self) -> Admin:
        self._running()
        if self._is_paused:
            raise BrokerProcessError("the broker is paused, and does not respond; call resume() first")
        if self._admin is None:
            from barnabas.client.admin import Admin  # noqa: PLC0415 - most tests bring clients of their own

            self._admin = Admin(self.bootstrap)
        return self._admin

    def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def _read(process: subprocess.Popen[bytes], lines: SimpleQueue[str | None]) -> None:
    """Pass the output of a process on, until its end."""
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
