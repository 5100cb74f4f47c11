"""Inference pipelines on a fleet of workers: graphs of models, GPU memory, configurations, deadlines; milliseconds."""
