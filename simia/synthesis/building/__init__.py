"""Build an environment: check its design, write, test and repair its tools, make its states, write its pack."""
