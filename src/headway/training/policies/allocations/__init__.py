"""How CPUs, memory and storage bandwidth are divided among jobs.

``synergy`` holds the allocations of Synergy's paper and code: ``proportional``, ``greedy``, ``tune``, ``opt``, and
``drf`` and ``tetris``, with which it is compared. ``headway`` holds our own. ``shared`` holds what they share.
"""
