"""The router of headway for one's own deployments on Ray Serve: ``headway.ray.Router`` (docs/guides/ray.md)."""

from headway.live.ray.books import Books as Books
from headway.live.ray.router import Router as Router
