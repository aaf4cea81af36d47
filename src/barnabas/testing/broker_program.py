"""The broker for tests of applications: the production broker, with faults that its parent process can order.

    python -m barnabas.testing.broker_program

The first line on standard input contains the settings and the first faults, as JSON. Each further line is an order. The
program answers each order with a line on standard output. The end of standard input means that the parent process has
ended, so the broker ends, too.

Production brokers have no such channel: `barnabas up` installs no stage for faults, and reads nothing from standard
input.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from barnabas.broker.environment import Environment
from barnabas.broker.main import run
from barnabas.broker.metadata_store_access import open_metadata_store
from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.errors import BarnabasError, DisconnectedError, ErrorCode
from barnabas.log_lines import log_to_standard_error
from barnabas.net.client_connection import ClientConnection, dial
from barnabas.net.listener import ConnectionResources, Listener
from barnabas.net.server_connection import HandlerFactory
from barnabas.testing.file_faults import FaultyFileSystem, FileFault, FileFaults
from barnabas.testing.request_faults import RequestFaults

ORDER_TIMEOUT_S = 20.0


class TestedNetwork:
    """The connections of the broker, with cuts. Used from the event loop's thread.

    :param cut_ports: the ports of other brokers to which there is no connection.
    :param are_clients_cut: True to accept no client.
    """

    def __init__(self, cut_ports: Sequence[int] = (), *, are_clients_cut: bool = False) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._cut_ports = frozenset(cut_ports)
        self.are_clients_cut = are_clients_cut
        self._listeners: list[tuple[Listener, str, int]] = []
        self._connections: list[tuple[int, ClientConnection]] = []

    def listen(self, limits: Any, resources: ConnectionResources | None = None, tls: Any = None) -> Listener:
        """Create a listener, as `Environment.listen`."""
        self.loop = asyncio.get_running_loop()
        return _ClientListener(self, limits, resources, tls) if resources else Listener(limits, resources, tls)

    def note_listener(self, listener: Listener, host: str, port: int) -> None:
        """Note a listener for clients, and its address."""
        self._listeners.append((listener, host, port))

    def cut(self, ports: Sequence[int], *, clients: bool) -> None:
        """End the connections to other brokers at some ports, and to clients; all other connections are possible.

        :raises OSError: the address of a listener is in use.
        """
        self._cut_ports = frozenset(ports)
        self._connections = [each for each in self._connections if each[1].is_open]
        for port, connection in self._connections:
            if port in self._cut_ports:
                connection.close()
        if clients:
            self.are_clients_cut = True
            for listener, _, _ in self._listeners:
                listener.stop_accepting()
                listener.end_connections()
        elif self.are_clients_cut:
            for listener, host, port in self._listeners:
                listener.listen(host, port)
                listener.begin_accepting()
            self.are_clients_cut = False

    async def dial(self, host: str, port: int, **options: Any) -> ClientConnection:
        """Connect to another broker, as `Environment.dial`.

        :raises DisconnectedError: the connection is cut.
        """
        self._refuse_cut(port)
        connection = await dial(host, port, **options)
        self._connections = [each for each in self._connections if each[1].is_open]
        self._connections.append((port, connection))
        try:
            self._refuse_cut(port)
        except DisconnectedError:
            connection.close()
            raise
        return connection

    def _refuse_cut(self, port: int) -> None:
        if port in self._cut_ports:
            raise DisconnectedError(f"a test has cut the connection to port {port}", "cut by a test")


class _ClientListener(Listener):
    """A listener for clients, which the network knows."""

    def __init__(self, network: TestedNetwork, limits: Any, resources: ConnectionResources, tls: Any) -> None:
        super().__init__(limits, resources, tls)
        self._network = network
        self._is_noted = False

    def listen(self, host: str, port: int, backlog: int = 1024) -> int:
        own = super().listen(host, port, backlog)
        if not self._is_noted:
            self._is_noted = True
            self._network.note_listener(self, host, own)
        return own

    def accept(self, new_handler: HandlerFactory) -> None:
        super().accept(new_handler)
        if self._network.are_clients_cut:
            self.stop_accepting()


class Orders:
    """Carries out the orders of the parent process. The thread of standard input calls `carry_out`.

    :param network: the connections of the broker.
    """

    def __init__(self, network: TestedNetwork) -> None:
        self.network = network
        self.requests = RequestFaults()
        self._files: tuple[FileFault, ...] = ()
        self.filesystem = FaultyFileSystem(FileFaults(lambda: self._files))
        self._store: MetadataStore | None = None

    def open_metadata_store(self, config: BrokerConfig, own_file: Path, clock: Clock) -> MetadataStore:
        """Open a session with the metadata store, as `Environment.open_metadata_store`."""
        self._store = open_metadata_store(config, own_file, clock)
        return self._store

    def carry_out(self, order: dict[str, Any]) -> Any:
        """Carry out an order; return its result.

        :raises BarnabasError: the order failed.
        :raises OSError: a listener cannot bind its address again.
        """
        kind = order.pop("order")
        functions: dict[str, Callable[..., Any]] = {
            "files": self._fail_files,
            "fail_next": self._fail_next,
            "failures_left": self._failures_left,
            "clear_failures": lambda: self._in_loop(self.requests.clear),
            "cut": lambda ports, clients: self._in_loop(functools.partial(self.network.cut, ports, clients=clients)),
            "expire_session": self._expire_session,
        }
        return functions[kind](**order)

    def _fail_files(self, faults: list[dict[str, Any]]) -> None:
        self._files = tuple(FileFault(**{**each, "operations": tuple(each["operations"])}) for each in faults)

    def _fail_next(self, key: int, code: int, count: int) -> None:
        self._in_loop(functools.partial(self.requests.fail_next, key, ErrorCode.of(code), count))

    def _failures_left(self) -> dict[int, int]:
        return self._in_loop(self.requests.left)  # type: ignore[no-any-return]

    def _expire_session(self) -> None:
        expire = getattr(self._store, "expire", None)
        if expire is None:
            raise BarnabasError("the broker has no session with ZooKeeper; use a cluster")
        expire()

    def _in_loop(self, function: Callable[[], Any]) -> Any:
        loop = self.network.loop
        assert loop is not None, "the broker has printed `ready`"

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), loop).result(ORDER_TIMEOUT_S)


def obey(orders: Orders, source: FileIO) -> None:
    """Carry out the orders on standard input until its end. Then end the process."""
    for line in source:
        order = json.loads(line)
        number = order.pop("number")
        try:
            answer = {"done": orders.carry_out(order)}
        except Exception as error:  # noqa: BLE001 - the parent process reports each error
            answer = {"failed": f"{type(error).__name__}: {error}"}
        sys.stdout.write(f"{json.dumps({'number': number, **answer})}\n")
        sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run the broker until a signal or the end of standard input. Return the exit code."""
    # Without a buffer: the interpreter could not end while a thread waits in a buffered reader.
    source = FileIO(sys.stdin.fileno(), closefd=False)
    first = json.loads(source.readline())
    orders = Orders(TestedNetwork(first["cut_ports"], are_clients_cut=first["are_clients_cut"]))
    orders.carry_out({"order": "files", "faults": first["files"]})
    threading.Thread(target=obey, args=(orders, source), name="orders", daemon=True).start()
    log_to_standard_error("plain")
    environment = Environment(
        filesystem=orders.filesystem,
        listen=orders.network.listen,
        dial=orders.network.dial,
        open_metadata_store=orders.open_metadata_store,
        stages=(orders.requests,),
    )
    try:
        return run(load_config(None, first["settings"], {}), environment)
    except (BarnabasError, OSError) as error:
        from barnabas.cli.error_messages import exit_code_of, explain  # noqa: PLC0415 - it would delay each start

        sys.stderr.write(f"barnabas: {explain(error)}\n")
        return exit_code_of(error)


if __name__ == "__main__":
    sys.exit(main())
