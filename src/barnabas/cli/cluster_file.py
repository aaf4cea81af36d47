"""`cluster.json`, which a cluster on this machine keeps in its folder: ports, for the next start, and process ids.

    {"version": 1, "host": "127.0.0.1", "zookeeper": [40001],
     "brokers": {"1": {"port": 9092, "process": 4711}, "2": ...}}

`process` is null while a broker does not run.
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
    """What the file says.

    >>> ClusterFile({1: 9092}, zookeeper_ports=(2181,)).broker_ports
    {1: 9092}
    """

    broker_ports: Mapping[int, int] = field(default_factory=dict)
    processes: Mapping[int, int] = field(default_factory=dict)
    """The processes of the brokers that run, or ran when the file was written."""
    zookeeper_ports: tuple[int, ...] = ()
    """Empty where ZooKeeper is somebody else's."""
    host: str = USUAL_HOST
    """The address that the brokers listen on."""

    @property
    def addresses(self) -> list[str]:
        """Where the brokers serve, or would."""
        return [host_port(self.host, port) for _, port in sorted(self.broker_ports.items())]

    def write(self, folder: Path) -> None:
        """Write the file as a whole: a reader finds what was before, or this."""
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
        """Return what the file in a folder says, nothing where there is none.

        :raises DataFolderError: it cannot be understood.
        """
        path = folder / NAME
        try:
            with path.open("rb") as file:
                return _parse(file.read(FILE_BYTES_MAX))
        except FileNotFoundError:
            return cls()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataFolderError(
                f"{path} cannot be understood ({error!r}); without it, other ports are chosen, and nothing else is lost"
            ) from None


def _parse(text: bytes) -> ClusterFile:
    content = json.loads(text)
    brokers = {int(broker): entry for broker, entry in content["brokers"].items()}
    return ClusterFile(
        {broker: _port(entry["port"]) for broker, entry in brokers.items()},
        {broker: int(entry["process"]) for broker, entry in brokers.items() if entry["process"] is not None},
        tuple(_port(each) for each in content["zookeeper"]),
        str(content.get("host", USUAL_HOST)),  # files of 0.1.0 do not say it
    )


def _port(value: object) -> int:
    if type(value) is not int or not 0 < value < 65_536:
        raise ValueError(f"{value!r} is no port")
    return value
