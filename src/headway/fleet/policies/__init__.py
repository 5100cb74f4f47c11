"""Serving policies, one module each; ``registry`` names them all."""
