"""Evaluate agents, simulators and judges: scores of rollouts, fidelity of simulated worlds, calibration of judges."""
