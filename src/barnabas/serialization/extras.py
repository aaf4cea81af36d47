"""What the formats need beyond this package: imported when first used, with a word on how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from barnabas.errors import ConfigurationError


def need(module: str, package: str = "") -> Any:
    """Return a module that an extra brings.

    :raises ConfigurationError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        raise ConfigurationError(f"this needs {name}; run: pip install 'barnabas[schemas]'") from error
