"""The handlers of the pages. Each takes a `Context` and returns a response."""
