"""Serve pipelines for real: workers in processes of this machine, driven by the loop and the policies of a simulation."""
