"""Check a tape of jobs with accounts of its own, and replay it."""
