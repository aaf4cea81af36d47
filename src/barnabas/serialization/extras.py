"""Packages that the formats need: imported when first used, with the extra named where one is missing."""

from __future__ import annotations

from typing import Any

from barnabas.extras import require


def require_schema_package(module: str) -> Any:
    """Return a module that the extra `schemas` brings.

    :raises MissingExtraError: it is not installed.
    """
    return require(module, "schemas")
