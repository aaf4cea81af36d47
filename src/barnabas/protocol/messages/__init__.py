"""The messages of the protocol: one file for each API, holding its request and its response."""
