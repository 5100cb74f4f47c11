"""Serving on a Ray cluster: workers are replicas of Ray Serve. Its modules import Ray, and are imported when used."""
