"""Policies that share one GPU between programs of different priority; ``registry`` names them all."""
