"""`make demo`: real events pass through the whole system on one machine, in separate processes.

`pipeline.py` contains the steps of the demo; each other file is one part of it.
"""
