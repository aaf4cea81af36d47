"""Keeps pyarrow from importing pandas in this process, so that commands start fast.

pyarrow imports pandas, if installed, when it creates its first array from a list. This import takes a quarter of the
CPU time of a small query. pyarrow looks for pandas only once. So pandas is hidden only during that check, and later
imports of pandas work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class _PandasHider:
    """An import finder that hides pandas."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for pandas; return None for all other modules."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is hidden from pyarrow to save its import time", name=name)
        return None


def hide_pandas() -> None:
    """Prevent pyarrow from importing pandas, unless pandas is already imported."""
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _PandasHider)
    try:
        import pyarrow as pa

        pa.array([])
    finally:
        sys.meta_path.remove(_PandasHider)
