"""Executors in virtual time: an action becomes the events it will cause, by the timing models of its domain."""
