"""The metadata store of a cluster in ZooKeeper: a session with an ensemble, and ZooKeeper servers on this machine.

`config` contains the addresses, `metadata_store` the `ZooKeeperMetadataStore`, and `servers` starts servers from jars.
Only this package uses kazoo. This `__init__` imports no module.
"""
