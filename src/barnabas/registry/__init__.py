"""The schema registry: Confluent's REST interface over a compacted topic, in one process or several.

`state.py` contains the content of the topic, and `changes.py` plans the changes that requests make. Neither of them
does I/O. `schema_topic.py` reads and writes the topic. `change_order.py` decides between registries that write at the
same time. `routes.py` and `http_server.py` implement the REST interface.
"""
