"""Build the shim, check it, and start programs with it."""
