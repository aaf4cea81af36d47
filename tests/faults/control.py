"""What a test tells a broker's files and clock to do: a file that the test replaces, and the broker looks at.

The broker looks at it before each operation, so what is told holds from the next operation on, whoever does it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from barnabas.testing.file_faults import OPERATIONS, WRITES, FileFault


@dataclass(frozen=True)
class Orders:
    """All that holds at a time.

    :param clock_ahead_ms: by how much the wall clock is ahead; negative: behind.
    """

    rules: tuple[FileFault, ...] = ()
    clock_ahead_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Orders:
        """Read what `Faults` has written."""
        found = json.loads(text)
        rules = (FileFault(**{**each, "operations": tuple(each["operations"])}) for each in found["rules"])
        return cls(tuple(rules), found["clock_ahead_ms"])


class Faults:
    """Tells the broker that looks at a file. Used from one thread.

    :param path: the file; it is there from now on, and tells of no fault.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = 0
        self._told_at_ns = 0
        self._orders = Orders()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.clear()

    def write_errors(
        self,
        error: str,
        share: float = 1.0,
        operations: Sequence[str] = WRITES,
        *,
        paths: str = "*",
        nth: int | None = None,
    ) -> None:
        """Let operations fail from now on, besides what was told before; see `FileFault`.

        A write that fails has written one half. While ENOSPC is told for all writes, the disk says that it is full.

        :param error: the name of an errno: "ENOSPC", "EIO".
        """
        self._add(operations=tuple(operations), paths=paths, error=error, share=share, nth=nth)

    def slow(self, ms: float, operations: Sequence[str] = OPERATIONS, *, paths: str = "*", share: float = 1.0) -> None:
        """Let operations take so much longer from now on: a disk that is overloaded."""
        self._add(operations=tuple(operations), paths=paths, slow_ms=ms, share=share)

    def jump_clock(self, ms: int) -> None:
        """Let the wall clock jump ahead from where it is, or back; monotonic time goes on as it does."""
        self._tell(Orders(self._orders.rules, self._orders.clock_ahead_ms + ms))

    def clear(self) -> None:
        """Let all work again, and the clock tell the machine's time."""
        self._tell(Orders())

    def clear_disk(self) -> None:
        """Let all files work again; the clock stays as it is."""
        self._tell(Orders((), self._orders.clock_ahead_ms))

    def struck(self) -> list[tuple[int, str, str]]:
        """Return what has failed so far: the number of the rule, the operation, the path. The first rule is 1."""
        try:
            lines = struck_file(self.path).read_text().splitlines()
        except FileNotFoundError:
            return []
        fields = (line.split(" ", 2) for line in lines)
        return [(int(number), operation, path) for number, operation, path in fields]

    def _add(self, **values: Any) -> None:
        unknown = set(values["operations"]) - set(OPERATIONS)
        assert not unknown, f"no operations: {unknown}; there are {OPERATIONS}"
        self._numbers += 1
        self._tell(Orders((*self._orders.rules, FileFault(self._numbers, **values)), self._orders.clock_ahead_ms))

    def _tell(self, orders: Orders) -> None:
        """Replace the file, with a time of change that it never had before: by it the broker knows that it is new."""
        self._orders = orders
        self._told_at_ns = max(time.time_ns(), self._told_at_ns + 1)
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text(json.dumps(asdict(orders)))
        os.utime(temporary, ns=(self._told_at_ns, self._told_at_ns))
        temporary.replace(self.path)


def struck_file(path: Path) -> Path:
    """Return where a broker writes down what has failed, given where it is told."""
    return path.with_name(path.name + ".struck")
