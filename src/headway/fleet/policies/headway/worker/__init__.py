"""Decide on each worker for itself."""
