"""The producers: they collect records into batches, and deliver the batches in order, each one once."""
