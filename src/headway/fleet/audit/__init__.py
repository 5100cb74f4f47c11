"""Check a tape of a fleet with accounts of its own, and replay it."""
