"""Has pyarrow do without pandas in this process, for commands that are to answer at once.

pyarrow looks for pandas when it makes its first array of a list, and imports it where it is installed. That is a
quarter of the CPU time of a small query, which has no use for it. Whether it is there is asked once: what pyarrow finds
while pandas is out of sight holds for the process, and who imports pandas later has it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _OutOfSight:
    """Stands first among those who find modules, and says of one that there is none."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise where pandas is asked for; leave all else to others."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not wanted here", name=name)
        return None


def hide_pandas() -> None:
    """Have pyarrow find no pandas, unless somebody has imported it already."""
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _OutOfSight)
    try:
        import pyarrow as pa

        pa.array([])
    finally:
        sys.meta_path.remove(_OutOfSight)
