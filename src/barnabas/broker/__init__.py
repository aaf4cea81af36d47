"""The broker process: request handlers for each API, over logs, consumer groups and the metadata store."""
