"""The only code that touches sockets: streams of bytes, frames, a listener for brokers, connections of clients."""
