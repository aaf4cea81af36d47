"""ZooKeeper's client protocol over an embedded tree, without I/O: whoever has a listener hands in bytes and the time.

`jute` and `requests` read what clients send, `answers` writes what they are sent; `sessions` knows who is alive,
`watches` who wants to hear of what, and `serving` carries out requests. Facts: ZooKeeper 3.9, `zookeeper.jute` and
`ZooDefs.OpCode`; the programmer's guide ("ZooKeeper Sessions", "ZooKeeper Watches").
"""
