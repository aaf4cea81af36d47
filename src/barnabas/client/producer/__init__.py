"""The producer: records gathered into batches, sent in order, delivered once."""
