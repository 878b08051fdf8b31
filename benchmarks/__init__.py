"""Benchmarks. They print ratios against a raw baseline that is measured in the same run."""
