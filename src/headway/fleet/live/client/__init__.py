"""Ask a fleet that serves, from a user's program."""
