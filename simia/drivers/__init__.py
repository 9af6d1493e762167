"""Drivers: the code that imported packs run. An import copies these modules into the pack; they run only in the sandbox."""
