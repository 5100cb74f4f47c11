"""Decide for the whole fleet at once."""
