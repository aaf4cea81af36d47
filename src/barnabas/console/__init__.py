"""The console: web pages about a cluster that speaks Kafka's protocol.

`application` contains the routes, `pages` the handlers, and `templates` the HTML. `guard` protects all pages.
`sessions` contains the signed-in users. Each has a `ClusterView`, which asks the brokers, caches their answers for a
moment, and samples offsets for the charts, and `Audits`, which compare the tiers of topics on threads. The server
renders all pages; scripts only refresh parts of them.
"""
