"""RabbitMQ from Debian's package, with its own Erlang, ports, folders and cookie.

Debian's scripts expect the package in /usr, but it may be unpacked anywhere. So the benchmark writes its own `erl`
script that contains the path of Erlang. The benchmark runs Erlang's port mapper (epmd) as a child process. Otherwise
Erlang would start a daemon that keeps running.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from bench.downloads import UnavailableError, debian_package
from bench.peers.server import NO_SETTINGS, Server, free_port
from bench.processes import ServerProcess

PACKAGE = "rabbitmq-server"
PROOF = "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
ERL = """\
#!/bin/sh
export ROOTDIR={erlang} BINDIR={binaries} EMU=beam PROGNAME=erl
exec {binaries}/erlexec "$@"
"""
CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.console = true
log.console.level = error
log.file = false
"""


class RabbitMq(Server):
    name = "rabbitmq"
    title = "RabbitMQ"
    protocol = "amqp"
    settings = "defaults, no plugins; durable classic queue, persistent messages, no publisher confirms"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._mapper: ServerProcess | None = None

    def launch(self) -> ServerProcess:
        root = debian_package(PACKAGE, PROOF)
        erlang = root / "usr/lib/erlang"
        binaries = next(erlang.glob("erts-*/bin"), None)
        if not binaries:
            raise UnavailableError("Debian's Erlang is not at its usual path")
        self._write_files(erlang, binaries)
        mapper_port = free_port()
        command = [str(binaries / "epmd"), "-address", "127.0.0.1", "-port", str(mapper_port)]
        self._mapper = ServerProcess(command, self.folder / "epmd.log")
        (script,) = root.glob(PROOF)
        return ServerProcess([str(script)], self.folder / "log", self._environment(erlang, script, mapper_port))

    def _write_files(self, erlang: Path, binaries: Path) -> None:
        for name in ("bin", "home"):
            (self.folder / name).mkdir()
        (self.folder / "bin/erl").write_text(ERL.format(erlang=erlang, binaries=binaries))
        (self.folder / "bin/erl").chmod(0o755)
        (self.folder / "rabbitmq.conf").write_text(CONFIGURATION.format(port=self.port))
        (self.folder / "enabled_plugins").write_text("[].\n")

    def _environment(self, erlang: Path, script: Path, mapper_port: int) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}/bin:{erlang}/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(self.folder / "home"),  # Erlang creates its cookie here
            "LANG": "C.UTF-8",
            "RABBITMQ_HOME": str(script.parent.parent),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_ALLOW_INPUT": "1",  # the script calls exec, so that Erlang itself handles SIGTERM
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput",
        }

    def stop(self) -> None:
        super().stop()
        if self._mapper:
            self._mapper.stop()

    def version(self) -> str:
        root = debian_package(PACKAGE, PROOF)
        release = next(root.glob(PROOF)).parent.parent.name.partition("-")[2]
        erlang = next((root / "usr/lib/erlang/releases").glob("[0-9]*"), Path("?")).name
        return f"{release}, Erlang {erlang}"

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        """Do nothing: the client declares the queue."""

    def delete_topic(self, topic: str) -> None:
        pika = import_module("pika")
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port))
        connection.channel().queue_delete(topic)
        connection.close()

    def data_folders(self, topic: str) -> list[Path]:
        del topic  # one folder contains all queues; the benchmark has only one queue at a time
        return list((self.folder / "data").glob("bench*/msg_stores"))
