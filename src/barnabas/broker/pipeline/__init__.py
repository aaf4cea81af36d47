"""The request pipeline: the path of a request from its frame through stages and handler to the response frame.

`scheduler` takes frames from a connection, and decides when requests run, and which requests run together. `call`
decodes requests and encodes responses. `chain` contains the stages that each call passes before and after its handler.
These modules contain no code for specific APIs. A `ServedApi` contains the rules of an API.
"""
