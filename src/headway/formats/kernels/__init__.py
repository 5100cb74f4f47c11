"""Files about kernels on one GPU: traces, profiles, programs, experiment tables."""
