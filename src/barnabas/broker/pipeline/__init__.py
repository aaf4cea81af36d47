"""The path of every request through the broker: frame, call, stages, handler, reply, frame.

`scheduler` takes frames from a connection, and decides when a request runs, and with which others. `call` decodes
requests and encodes responses. `chain` has the stages that every call passes, with the handler among them. No module
here knows an API by name: a `ServedApi` has the rules of an API.
"""
