"""Policies that share one GPU among programs of different priority, one module each; ``registry`` names them all."""
