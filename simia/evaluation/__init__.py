"""Measure what can be trusted: fidelity of simulated worlds, calibration of judges."""
