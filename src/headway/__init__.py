"""Headway schedules shared GPUs: try any policy on your own trace, then run the same policy live."""

__version__ = "0.1.0"
