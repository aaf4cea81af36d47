"""The mirror: copies topics of one cluster to another (paper, section 4: a replica cluster with an embedded consumer).

Record batches are copied without decoding. The header of each mirrored batch names its source offsets
(`records/mirror_identity.py`). So the last batch of a target partition shows the source offset at which mirroring
resumes. docs/how-to/mirror.md explains why no record is lost or duplicated.
"""
