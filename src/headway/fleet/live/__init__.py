"""Serve pipelines for real: worker processes on this machine, driven by the loop and the policies of a simulation."""
