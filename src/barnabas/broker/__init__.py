"""The broker process: one handler file for each API over logs, groups and the tree of shared state."""
