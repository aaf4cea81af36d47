"""Authorization: the table of all APIs with the operations that they need, and the stage of the pipeline that checks
each request by this table.

`table` contains one rule per API. `rules` contains the kinds of rules, and `topic_rules`, `group_rules` and
`cluster_rules` the rules of single APIs. `stage` applies them. The decisions are those of
`barnabas.security.authorizer`. No handler checks permissions by itself.
"""
