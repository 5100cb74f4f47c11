"""Parse text and JSON that Slurm prints: jobs, nodes, partitions, its configuration."""
