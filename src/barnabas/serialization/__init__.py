"""Serializers and deserializers of records with a schema, and the client of the schema registry.

They convert between bytes and objects, for producers and consumers of any kind. `avro_columns.py` decodes whole
columns. The package of a format (fastavro, jsonschema, protobuf) is imported at its first use.
"""
