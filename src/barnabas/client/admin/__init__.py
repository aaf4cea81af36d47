"""What administrators do: `Admin`, and for each kind of thing that it looks at or changes a module of coroutines.

Offsets are asked for by consumers too, so they stand in `barnabas.client.offset_queries`.
"""

from barnabas.client.admin.admin import Admin

__all__ = ["Admin"]
