"""Nodes that are set aside for some jobs."""
