"""Move weights between files, host memory and GPUs."""
