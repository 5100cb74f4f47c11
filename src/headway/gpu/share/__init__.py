"""Live sharing of one GPU: the broker, the shared memory block that it writes, the programs that run under the shim."""
