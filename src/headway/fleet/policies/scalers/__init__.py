"""Scalers: how many workers of each kind a fleet rents at a time; see ``parts``."""
