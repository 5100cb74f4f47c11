"""Code that all allocations use.

``demands``: demands and proportional shares of jobs, and the actions that change grants. ``free_resources``: free CPUs,
memory and storage bandwidth while grants are tried out. ``tightest``: best fit over all resources. ``caching``: a
bounded cache.
"""
