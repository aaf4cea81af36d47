"""ActiveMQ ("Classic") from Debian's package, started by its own console class in its own directory.

The configuration is Debian's (KahaDB, persistent), with listeners on free ports and an additional listener for STOMP.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench.downloads import debian_package, jar_version, java, java_version
from bench.peers.server import NO_SETTINGS, Server, folder_bytes, free_port
from bench.processes import ServerProcess

PACKAGE = "activemq"
PROOF = "usr/share/activemq/lib/activemq-broker.jar"
JOURNALS = "db-*.log"
BLOCK_BYTES = 1024 * 1024
JVM_OPTIONS = ("-Xms512M", "-Xmx512M", "-Dorg.apache.activemq.UseDedicatedTaskRunner=true")
CONFIGURATION = """\
<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="localhost"
      dataDirectory="{folder}/data">
    <persistenceAdapter><kahaDB directory="{folder}/data/kahadb"/></persistenceAdapter>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{port}"/>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp_port}"/>
    </transportConnectors>
  </broker>
</beans>
"""


class ActiveMq(Server):
    name = "activemq"
    title = "ActiveMQ"
    protocol = "jms"
    settings = "Debian's configuration and JVM options (KahaDB, heap 512 MB), persistent messages, asynchronous sends"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stomp_port = free_port()

    def launch(self) -> ServerProcess:
        configuration = self.folder / "activemq.xml"
        configuration.write_text(CONFIGURATION.format(folder=self.folder, port=self.port, stomp_port=self.stomp_port))
        root = debian_package(PACKAGE, PROOF)
        places = {
            "activemq.home": root / "usr/share/activemq",
            "activemq.base": self.folder,
            "activemq.conf": self.folder,
            "activemq.data": self.folder / "data",
        }
        properties = [f"-D{name}={place}" for name, place in places.items()]
        start = ["org.apache.activemq.console.Main", "start", f"xbean:file:{configuration}"]
        return ServerProcess(
            [java(newest=False), *JVM_OPTIONS, *properties, "-cp", class_path(), *start], self.folder / "log"
        )

    def version(self) -> str:
        root = debian_package(PACKAGE, PROOF)
        return f"{client_version(root)}, Java {java_version(java(newest=False))}"

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        """Do nothing: the broker creates a queue when it is first used."""

    def delete_topic(self, topic: str) -> None:
        """Do nothing: consumed messages are already deleted, and each run has a new queue."""

    def data_folders(self, topic: str) -> list[Path]:
        del topic  # one journal contains all queues
        return [self.folder / "data/kahadb"]

    def stored_bytes(self, topic: str) -> int:
        """Return the size of the journal and the index. Journal files are preallocated with zeros, which do not
        count.
        """
        (folder,) = self.data_folders(topic)
        journals = list(folder.glob(JOURNALS))
        return folder_bytes(folder) - folder_bytes(folder, JOURNALS) + sum(map(used_bytes, journals))


def used_bytes(path: Path) -> int:
    """Return the size of a file without the zeros at its end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - BLOCK_BYTES)
            file.seek(begin)
            if block := file.read(end - begin).rstrip(b"\0"):
                return begin + len(block)
            end = begin
    return 0


def class_path() -> str:
    """Return the jars of broker and client. The dependencies of the package may be unpacked next to it, or
    installed."""
    root = debian_package(PACKAGE, PROOF)
    folders = dict.fromkeys([root / "usr/share/java", Path("/usr/share/java")])
    return ":".join(f"{folder}/*" for folder in folders)


def client_version(root: Path) -> str:
    """Return the version of the ActiveMQ package."""
    return jar_version(root / "usr/share/java", "activemq-client")
