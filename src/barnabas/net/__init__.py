"""The only code that touches sockets: byte streams and their frames, the listener of a broker, and the connections of
clients.
"""
