"""The metrics of all components. Each component counts in plain integers, which a collector reads on request."""
