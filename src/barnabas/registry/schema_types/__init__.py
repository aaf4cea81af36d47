"""The kinds of schemas: Avro, JSON Schema, Protobuf. Each parses, writes in one form, and judges who can read whom."""
