"""Commands of jobs: the queue, the shadow of a cluster, tuning, and profiles of training programs."""
