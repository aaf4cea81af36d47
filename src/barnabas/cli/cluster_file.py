"""The file `cluster.json` in the directory of a cluster on this machine: the ports for the next start, and the process
ids.

    {"version": 1, "host": "127.0.0.1", "zookeeper": [40001],
     "brokers": {"1": {"port": 9092, "process": 4711}, "2": ...}}

`process` is null for a broker that is not running.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.addresses import host_port
from barnabas.errors import DataFolderError

NAME = "cluster.json"
USUAL_HOST = "127.0.0.1"
FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The content of `cluster.json`.

    >>> ClusterFile({1: 9092}, zookeeper_ports=(2181,)).broker_ports
    {1: 9092}
    """

    broker_ports: Mapping[int, int] = field(default_factory=dict)
    processes: Mapping[int, int] = field(default_factory=dict)
    """The process ids of the running brokers when the file was written."""
    zookeeper_ports: tuple[int, ...] = ()
    """The ports of the ZooKeeper servers; empty if the cluster uses an existing ZooKeeper."""
    host: str = USUAL_HOST
    """The address on which the brokers listen."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of the brokers, running or not."""
        return [host_port(self.host, port) for _, port in sorted(self.broker_ports.items())]

    def write(self, folder: Path) -> None:
        """Replace the file atomically, so that a reader sees either the old or the new content."""
        brokers = {
            str(broker): {"port": port, "process": self.processes.get(broker)}
            for broker, port in sorted(self.broker_ports.items())
        }
        content = {"version": 1, "host": self.host, "zookeeper": list(self.zookeeper_ports), "brokers": brokers}
        new = folder / f"{NAME}.new"
        new.write_text(json.dumps(content, indent=2) + "\n")
        new.replace(folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> ClusterFile:
        """Return the content of `cluster.json` in a directory; empty if the file does not exist.

        :raises DataFolderError: the file is damaged.
        """
        path = folder / NAME
        try:
            with path.open("rb") as file:
                return _parse(file.read(FILE_BYTES_MAX))
        except FileNotFoundError:
            return cls()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataFolderError(
                f"{path} is damaged ({error!r}); delete the file: the next start then chooses other ports, and no data"
                " is lost"
            ) from None


def _parse(text: bytes) -> ClusterFile:
    content = json.loads(text)
    brokers = {int(broker): entry for broker, entry in content["brokers"].items()}
    return ClusterFile(
        {broker: _port(entry["port"]) for broker, entry in brokers.items()},
        {broker: int(entry["process"]) for broker, entry in brokers.items() if entry["process"] is not None},
        tuple(_port(each) for each in content["zookeeper"]),
        str(content.get("host", USUAL_HOST)),  # release 0.1.0 wrote no host
    )


def _port(value: object) -> int:
    if type(value) is not int or not 0 < value < 65_536:
        raise ValueError(f"{value!r} is not a port")
    return value
