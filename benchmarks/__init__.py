"""Measurements and studies of treevae; run from a clone's root, as ``python -m benchmarks.speed.step``."""
