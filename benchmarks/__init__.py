"""Figures, printed as ratios against the raw floor that is measured in the same run."""
