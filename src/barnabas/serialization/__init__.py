"""Serializers and deserializers of records with a schema, and the client of the schema registry.

Serializers and deserializers convert single values, for all producers and consumers; `avro_columns.py` decodes whole
columns. The package of a format (fastavro, jsonschema, protobuf) is imported at its first use.
"""
