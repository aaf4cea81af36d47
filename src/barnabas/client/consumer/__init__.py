"""The consumers: fetching in advance, positions, group membership, and the classes `Consumer` and `AsyncConsumer`."""
