"""How the event loop has something done with the tree, which may wait for the disk or for servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

InTreeThread = Callable[..., "asyncio.Future[Any]"]
"""Runs a function of the tree, with its arguments, on the tree's thread."""
