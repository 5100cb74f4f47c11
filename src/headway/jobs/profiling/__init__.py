"""Measure a training program: its speed by CPUs and memory."""
