"""Measure real programs and write the results as profiles.

``job`` profiles a training program: how fast it runs with how many CPUs and how much memory. ``model``
times a network over batch, CPUs and share of a GPU. Everything here runs where GPUs are, so it needs the standard
library and numpy, nothing more; the processes that time networks need torch.
"""
