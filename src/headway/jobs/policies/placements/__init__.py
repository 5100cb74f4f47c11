"""Placements: which GPUs a job gets."""
