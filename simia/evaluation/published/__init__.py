"""Published result tables of the papers as data, with their sources and footnotes."""
