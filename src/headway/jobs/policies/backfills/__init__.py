"""Backfills: who may overtake whom when the first job cannot start."""
