"""Parse text that people and other systems write: TOML experiments here, Slurm and Kubernetes in the subfolders."""
