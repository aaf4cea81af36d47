"""The clients: an I/O-free core in small state machines, and a shell that runs them on a background thread.

What users import of them stands in `barnabas/__init__.pyi`.
"""
