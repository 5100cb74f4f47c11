"""Make a cluster, its policy and its jobs from the settings of an experiment."""
