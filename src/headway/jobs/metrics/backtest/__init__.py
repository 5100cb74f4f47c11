"""Compare simulated starts with recorded ones."""
