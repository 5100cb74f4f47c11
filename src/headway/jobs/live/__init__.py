"""Training jobs for real: the queue of this machine, its store and the programs that it runs."""
