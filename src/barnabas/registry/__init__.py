"""The schema registry: Confluent's REST interface over a compacted topic, as one process or several.

`state.py` holds the content of the topic, `changes.py` the changes that requests make; both are pure. `schema_topic.py`
reads and writes the topic. `change_order.py` decides between registries that write at the same time. `routes.py` and
`http_server.py` are the REST interface.
"""
