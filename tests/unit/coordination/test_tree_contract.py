"""The embedded tree keeps the contract of all trees."""

from __future__ import annotations

from tests.unit.coordination.tree_contract import *  # noqa: F403
from tests.unit.coordination.watch_contract import *  # noqa: F403
