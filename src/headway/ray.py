"""The router of headway for one's own deployments on Ray Serve: ``headway.ray.Router`` (docs/guides/ray.md)."""

from headway.fleet.ray.residency import Books as Books
from headway.fleet.ray.router import Router as Router
