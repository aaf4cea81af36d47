"""The clients: state machines without I/O, and drivers that run them on an event loop.

`barnabas/__init__.pyi` lists the public names.
"""
