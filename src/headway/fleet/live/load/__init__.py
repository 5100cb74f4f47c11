"""Send requests to a fleet that serves, at given times."""
