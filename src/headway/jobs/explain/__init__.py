"""Find out why a job waits, and what would make room for it."""
