"""Runs that a broker recorded: opened, shown and checked, never simulated."""
