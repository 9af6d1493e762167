"""Drivers: the code that imported packs run. An import copies these modules into the pack, and only the sandbox runs them."""
