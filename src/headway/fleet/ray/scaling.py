"""Number of workers on Ray, chosen by Serve's autoscaler from the orders that they have."""

from typing import Any

BUSY = 0.7
"""Orders of a worker at a time, in the mean, beyond which another is wanted."""


def wanted(context: Any) -> tuple[float, dict[str, Any]]:
    """Return how many workers are wanted; Serve adds its delays and bounds.

    The call that attached a worker lives as long as its replica, and is no work.
    """
    orders = max(0.0, context.total_num_requests - len(context.running_replicas))
    return orders / context.config.target_ongoing_requests, {}
