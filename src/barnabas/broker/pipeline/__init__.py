"""The way of every request through the broker: frame, call, stages, handler, reply, frame.

`scheduler` takes frames from a connection and decides when a request is carried out, and with which others. `decoding`
makes requests of frames. `chain` has the stages that every call passes, with the handler among them. `encoding` makes
frames of responses. The parts know no API by name: `served_api` says what they must know of one.
"""
