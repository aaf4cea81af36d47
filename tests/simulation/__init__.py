"""Whole brokers in one process, in virtual time, from a seed: the code of production, and a world that is made for it.

`world` has the loop, the clocks and the hosts; `network`, `disk` and `ensemble` what they share; `cluster` puts brokers
into it, `clients` use them, `nemesis` decides what befalls them, `story` is a whole run.
"""
