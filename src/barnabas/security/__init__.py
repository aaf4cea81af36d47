"""Authentication without I/O: SASL mechanisms, tokens, principals, and values that hide themselves.

The package opens no sockets and reads no clock. The time, nonces and keys are arguments, so tests replay each exchange.
"""
