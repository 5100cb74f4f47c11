"""Router of orders: the policy has chosen the worker, and the call says which replica that is."""

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica


class OrderRouter(RequestRouter):
    """Sends each call to the replica that it names; one that attaches, to a replica that no worker has had."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the replica of a call alone. Where it is gone, any will do: it takes no order of another."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # else Serve would ask again and again without a pause
        given: dict[Any, Any] = pending_request.kwargs
        if "used" in given:
            return [[each for each in candidate_replicas if each.replica_id.unique_id not in given["used"]]]
        named = [each for each in candidate_replicas if each.replica_id.unique_id == given["replica"]]
        return [named or candidate_replicas]
