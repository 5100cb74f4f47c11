"""Measure models and applications on a GPU, and write profiles of them."""
