"""Router of headway in front of a multi-model deployment of one's own: calls go where their model is.

    @serve.deployment(
        request_router_config=RequestRouterConfig(
            request_router_class=Router,
            request_router_kwargs={"sizes": {"vit": "1.7GB", "nli": "0.8GB"}, "memory": "14GB"},
        )
    )
    class Models: ...

The model of a call is its multiplexed model id, else its argument ``model``.
"""

from collections.abc import Mapping
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from headway.fleet.ray.residency import LOAD_CALLS, Books


class Router(RequestRouter):
    """Sends a call to a replica that holds its model, else to the one with the shortest queue and room."""

    def initialize_state(self, **options: Any) -> None:
        """Take ``sizes`` (bytes by model), ``memory`` (of a replica), and ``load_calls`` (what a load is worth)."""
        sizes: Mapping[str, int | str] = options["sizes"]
        self.books = Books(sizes, options["memory"], float(options.get("load_calls", LOAD_CALLS)))

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the replicas one by one, best first: Serve takes the first that is not full."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # else Serve would ask again and again without a pause
        model = _model(pending_request)
        by_id = {each.replica_id.unique_id: each for each in candidate_replicas}
        holding = [key for key, each in by_id.items() if model in each.multiplexed_model_ids]
        ranked = self.books.ranked(model, by_id, holding)
        if ranked:
            self.books.use(model, ranked[0])
        return [[by_id[key]] for key in ranked]

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """Count a call."""
        super().on_send_request(replica_id)
        self.books.begin(replica_id.unique_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Count the end of a call."""
        super().on_request_completed(replica_id, internal_request_id)
        self.books.end(replica_id.unique_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Forget replicas that are gone."""
        super().update_replicas(replicas)
        self.books.keep(each.replica_id.unique_id for each in replicas)


def _model(request: PendingRequest) -> str:
    return request.metadata.multiplexed_model_id or str(request.kwargs.get("model", ""))
