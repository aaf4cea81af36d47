"""The schema registry: Confluent's REST interface over a compacted topic, as one process or several.

`state.py` is what the topic says, `operations.py` what a request does to it, both pure; `topic.py` reads and writes the
topic, `election.py` says which of several registries writes, `routes.py` and `http_server.py` are the REST interface.
"""
