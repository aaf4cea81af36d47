"""The broker: its request handlers, and its replicas, consumer groups and metadata."""
