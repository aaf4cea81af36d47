"""The administrators: `Admin`, `AsyncAdmin`, and coroutines for each kind of thing that they describe or change.

Consumers look up offsets too, so those coroutines are in `barnabas.client.offset_requests`.
"""

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.async_admin import AsyncAdmin

__all__ = ["Admin", "AsyncAdmin"]
