"""The metadata store: shared state as nodes with ZooKeeper's semantics, and the functions that read and write it.

`metadata_store` is the interface, and `embedded_metadata_store` the implementation for a single broker. `paths` defines
the paths of all nodes; `topic_metadata_store` and `offsets` read and write them. This `__init__` imports no module, so
a process loads only the modules that it uses.
"""
