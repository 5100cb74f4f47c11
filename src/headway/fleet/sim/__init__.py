"""Simulate a fleet: engines, failures of workers."""
