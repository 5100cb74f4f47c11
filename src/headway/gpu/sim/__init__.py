"""Simulate programs on a GPU."""
