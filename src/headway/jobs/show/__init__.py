"""Make reports of training jobs on a cluster: page, figures, tables, stories, exports."""
