"""Make programs and a GPU from the settings of an experiment."""
