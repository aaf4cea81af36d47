"""The console: web pages about a cluster that speaks Kafka's protocol.

`application` contains the routes, `pages` the handlers, and `templates` the HTML. `guard` protects all pages.
`sessions` contains the signed-in users, each with a `ClusterView`, which asks the brokers, caches their answers for a
moment, and samples offsets for the charts. The server renders all pages; scripts only refresh parts of them.
"""
