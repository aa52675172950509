"""Ratios against peers and baselines: ``python -m benchmarks``, or ``make bench``."""
