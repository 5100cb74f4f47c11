"""Headway's own allocation of CPUs, memory and storage bandwidth.

``policy`` is the allocation. It uses ``estimates`` (speeds from profiles, corrected by what was observed),
``candidates`` (grants worth considering for a job), ``knapsack`` (the best division of one node, by dynamic
programming), ``node_models`` (the jobs of all nodes), ``node_choice`` (where a job is placed) and ``exchanges`` (moves
and swaps of running jobs that pay).
"""
