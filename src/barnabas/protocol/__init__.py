"""The wire protocol, without I/O: bytes in, messages out, and back.

`declare` says how a message is declared, `messages/` declares them, `compiler` makes encoders and decoders of the
declarations, `codec` runs them, `frames` puts headers and sizes around them, `apis` lists what there is. The facts
are those of Apache Kafka's public message definitions.
"""
