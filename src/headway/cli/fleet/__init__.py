"""Commands of the fleet: serve, call, load, and profiles of models."""
