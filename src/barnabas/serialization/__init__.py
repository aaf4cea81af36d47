"""Records as objects with a schema: serialisers and deserialisers, and the client of the registry that they ask.

They are functions of bytes and objects, for producers and consumers of any kind; `columns.py` decodes whole columns.
What each format needs (fastavro, jsonschema, protobuf) is imported when it is first used.
"""
