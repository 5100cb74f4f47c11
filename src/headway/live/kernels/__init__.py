"""Sharing one GPU live: the broker, the shared block it writes, the programs it starts under the shim."""
