"""Select trajectories to train on: near-duplicates, contamination by benchmarks, mixing of domains. No model is asked."""
