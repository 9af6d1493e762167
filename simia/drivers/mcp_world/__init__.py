"""The driver of a server of the Model Context Protocol, copied into each imported pack: see `world`."""
