"""The consumer: prefetch, positions, groups."""
