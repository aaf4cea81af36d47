"""The schema types Avro, JSON Schema and Protobuf: each type parses schemas, writes them in canonical form, and checks
compatibility."""
