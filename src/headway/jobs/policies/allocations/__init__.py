"""Policies that divide CPUs, memory and storage bandwidth among jobs.

``synergy`` holds the allocations of Synergy's paper and code: ``proportional``, ``greedy``, ``tune``, ``opt``, and
``drf`` and ``tetris``, with which it is compared. ``headway`` holds Headway's own allocation. ``shared`` holds what
both packages use.
"""
