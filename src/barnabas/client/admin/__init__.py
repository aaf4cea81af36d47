"""The admin clients `Admin` and `AsyncAdmin`, and coroutines for topics, settings, groups, brokers and log directories.

Requests for offsets are in `barnabas.client.offset_requests`, because consumers send them, too.
"""

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.async_admin import AsyncAdmin

__all__ = ["Admin", "AsyncAdmin"]
