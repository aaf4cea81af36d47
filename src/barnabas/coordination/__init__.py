"""Shared state as a tree of nodes with the semantics of ZooKeeper, and what Barnabas keeps in it.

`tree` is the interface, `embedded` the tree of a single broker; `paths` names the nodes, `registry` and
`offsets` read and write them. Import from those modules: this one loads none, so that a process pays only for
what it uses.
"""
