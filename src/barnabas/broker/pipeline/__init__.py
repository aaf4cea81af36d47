"""The path of every request through the broker: frame, call, stages, handler, reply, frame.

`scheduler` takes frames from a connection, and decides when requests run, and which requests run together. `call`
decodes requests and encodes responses. `chain` has the stages that every call passes, with the handler among them. The
modules here contain no code for specific APIs: a `ServedApi` has the rules of an API.
"""
