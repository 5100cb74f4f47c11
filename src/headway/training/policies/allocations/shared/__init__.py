"""What allocations share.

``wants``: what a job would like, what it is due, and how changes are carried out. ``room``: jobs, and what is free
besides GPUs, while grants are tried out. ``tightest``: the node with least free that fits. ``memo``: results that are
remembered.
"""
