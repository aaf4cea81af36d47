"""The audit of the paper's section 4: every place that records pass counts them, and the counts are compared.

A tier counts the records of a topic by windows of event time (`windows`), under what makes each of them that one and no
other (`identities`), and tells what it has counted in monitoring events (`events`). `balance` compares two tiers.
"""
