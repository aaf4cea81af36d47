"""Brokers, alone or in a cluster, whose files and clocks a test can let fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas.testing.file_faults import WRITES
from tests.faults.control import Faults
from tests.support.broker_process import BrokerProcess
from tests.support.process_cluster import Cluster


class FaultyBroker(BrokerProcess):
    """A broker in a process of its own whose files and clock can be told to fail: see `faults`."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(data, settings)
        self.faults = Faults(data.with_name(f"{data.name}.faults"))

    @property
    def program(self) -> Sequence[str]:
        return ("tests.faults.faulty_broker", str(self.faults.path))


class FaultyBrokers(Cluster):
    """A cluster of such brokers."""

    make_broker = FaultyBroker

    @property
    def faults(self) -> dict[int, Faults]:
        """By broker: what tells its files and its clock to fail."""
        return {number: broker.faults for number, broker in self.brokers.items() if isinstance(broker, FaultyBroker)}

    def write_errors(
        self, broker: int, error: str, share: float = 1.0, operations: Sequence[str] = WRITES, **how: object
    ) -> None:
        """Let a broker's files fail; see `Faults.write_errors`."""
        self.faults[broker].write_errors(error, share, operations, **how)  # type: ignore[arg-type]

    def jump_clock(self, broker: int, ms: int) -> None:
        """Let a broker's wall clock jump ahead, or back."""
        self.faults[broker].jump_clock(ms)

    def clear(self, broker: int) -> None:
        """Let a broker's files and its clock be as the machine's are."""
        self.faults[broker].clear()

    def heal(self) -> None:
        """Let all files and clocks work, and all brokers run. A log that is offline stays so until a restart."""
        for each in self.faults.values():
            each.clear()
        super().heal()
