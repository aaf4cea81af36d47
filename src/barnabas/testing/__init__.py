"""What tests of a distributed log need, for Barnabas' own and for yours, with any broker of Kafka's protocol.

`history` writes down what clients did and saw, and finds out whether the log kept its promises.
"""
