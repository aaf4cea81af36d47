"""Shared state as a tree of nodes with the semantics of ZooKeeper, and what Barnabas keeps in it.

`metadata_store` is the interface, `embedded_metadata_store` the store of a single broker; `paths` names the nodes,
`topic_metadata_store` and `offsets` read and write them. Import from those modules: this one loads none, so that a
process pays only for what it uses.
"""
