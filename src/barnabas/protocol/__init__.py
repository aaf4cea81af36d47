"""The wire protocol, without I/O: bytes in, messages out, and back.

`declare` says how a message is declared, `messages/` declares them, `compiler` makes encoders and decoders of the
declarations, `codec` runs them and puts headers and sizes around messages, `apis` lists the APIs. The facts are those
of Apache Kafka's public message definitions.
"""
