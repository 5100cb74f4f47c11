"""How CPUs, memory and storage bandwidth are divided.

``proportional``, ``greedy``, ``tune``, ``drf``, ``tetris``, ``opt``, ``headway`` are the allocations. What they share:
``wants`` (what a job would like, is due, and how changes are carried out), ``room`` (a sketch of what is free),
``changed`` (whom to divide anew), ``tightest`` (the node with least free that fits); ``full``, ``packing`` and ``tied``
for those with static demands. ``opt`` stands on ``programmes`` (its two programmes), ``branching`` (whole numbers),
``kinds`` (jobs that are alike), ``fronts`` (one node, exactly), ``shelves`` (all nodes), ``moves``. ``headway`` stands
on ``beliefs`` (what profiles say until it is seen otherwise), ``offers`` (grants worth a look), ``water`` (one node,
by a table over units), ``books`` (all nodes), ``sites`` (where a job goes) and ``exchanges`` (moves that pay).
"""
