"""Run experiments: files and variants, one run, its folder, seeds, comparison, sweep; once for all scales.

``domain`` says what a scale is, ``registry`` lists them, and ``jobs``, ``fleet`` and ``gpu`` are theirs.
"""
