"""Draw jobs, and change them before a run."""
