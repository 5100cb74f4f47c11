"""Training jobs on a cluster: what a job, a cluster, an event, an action and the state are."""
