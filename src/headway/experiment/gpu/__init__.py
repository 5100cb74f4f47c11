"""The gpu scale: programs that share one GPU, kernel by kernel.

Predictions run on GPU machines without msgspec and polars: ``setting``, ``sources`` and ``predict`` need neither.
"""
