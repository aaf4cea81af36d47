"""Records as objects with a schema: serialisers and deserialisers, and the client of the registry that they ask."""
