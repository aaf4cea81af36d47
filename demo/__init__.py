"""`make demo`: real events through the whole system, on one machine, through real processes.

`pipeline.py` is the story, step by step; each file beside it is one part of it.
"""
