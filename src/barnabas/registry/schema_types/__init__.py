"""The schema types Avro, JSON Schema and Protobuf: each parses, writes a canonical form, and checks compatibility."""
