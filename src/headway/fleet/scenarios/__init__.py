"""Scenarios of an inference fleet: the shipped files, and how a scenario is read and built."""
