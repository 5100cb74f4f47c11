"""Policies for training clusters, composed of parts: order + backfill + placement + preemption + migration."""
