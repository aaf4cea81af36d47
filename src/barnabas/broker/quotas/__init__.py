"""Client quotas: their storage, their arithmetic, and the throttling of clients that exceed them (KIP-13, KIP-124,
KIP-219, KIP-546, KIP-599, KIP-612).
"""
