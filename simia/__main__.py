"""`python -m simia` is the `simia` command."""

from simia.cli import main

main()
