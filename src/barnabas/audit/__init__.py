"""The audit of the paper's section 4: each tier that records pass counts them, and the audit compares the counts.

A tier counts the records of a topic by windows of event time (`windows`) under their identities (`identities`), and
reports the counts in monitoring events (`events`). `balance` compares two tiers.
"""
