"""Compass: graphs planned by HEFT with load and models, adjusted on the way, decided by each worker."""
