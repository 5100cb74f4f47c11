"""Reports of training jobs on a cluster: page, figures, tables, stories, exports."""
