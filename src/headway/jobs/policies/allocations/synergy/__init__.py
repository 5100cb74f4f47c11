"""Synergy's allocations (Mohan et al., OSDI 2022), and those that it is compared with.

``tune`` uses ``changed_nodes`` (the jobs to divide anew) and ``leftovers``. ``opt`` uses ``programs`` (its two integer
programs), ``branch_and_bound`` (the solver), ``kinds`` (the grants a job may get), ``pareto_fronts`` (the best division
of one node), ``node_models`` (all nodes) and ``moves``. ``greedy``, ``drf`` and ``tetris`` use static demands:
``full_demand``, ``packing``, ``ties``.
"""
