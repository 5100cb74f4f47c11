"""Choose which running jobs to stop for others."""
