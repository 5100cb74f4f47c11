"""Headway's own allocation of CPUs, memory and storage bandwidth.

``policy`` stands on ``beliefs`` (what profiles say until it is seen otherwise), ``offers`` (grants worth a look),
``knapsack`` (one node, by a table over units), ``node_books`` (all nodes), ``sites`` (where a job goes) and
``exchanges`` (moves that pay).
"""
