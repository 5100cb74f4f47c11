"""Synergy's allocations (Mohan et al., OSDI 2022), and those that it is compared with.

``tune`` stands on ``changed`` (whom to divide anew) and ``leftovers``.
``opt`` stands on ``programs`` (its two programs), ``branch_and_bound`` (whole numbers), ``kinds`` (jobs that are
alike), ``fronts`` (one node, exactly), ``node_models`` (all nodes) and ``moves``. ``greedy``, ``drf`` and ``tetris``
go by static demands: ``full_demand``, ``packing``, ``ties``.
"""
