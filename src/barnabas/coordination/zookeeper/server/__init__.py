"""ZooKeeper's client protocol for an embedded metadata store, without I/O: callers pass in bytes and the time.

`jute` and `requests` decode requests, and `answers` encodes responses. `sessions` contains the live sessions, `watches`
the watches of clients, and `serving` executes requests. Sources: ZooKeeper 3.9, `zookeeper.jute` and `ZooDefs.OpCode`;
the programmer's guide ("ZooKeeper Sessions", "ZooKeeper Watches").
"""
