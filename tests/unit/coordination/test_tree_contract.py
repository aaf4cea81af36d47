"""The embedded tree keeps the contract of all trees."""

from __future__ import annotations

from tests.support.tree_contract import *  # noqa: F403
from tests.support.watch_contract import *  # noqa: F403
