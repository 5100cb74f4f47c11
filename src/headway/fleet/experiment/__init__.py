"""Make a fleet, its policy and its requests from the settings of an experiment."""
