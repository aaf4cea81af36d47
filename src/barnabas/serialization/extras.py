"""The import of the optional packages that the formats need. Each package is imported at its first use."""

from __future__ import annotations

from typing import Any

from barnabas.extras import require


def require_schema_package(module: str) -> Any:
    """Import a module of the extra `schemas`.

    :raises MissingExtraError: if the module is not installed. The message names the extra.
    """
    return require(module, "schemas")
