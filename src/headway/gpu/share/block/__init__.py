"""The shared memory between the broker and the shim."""
