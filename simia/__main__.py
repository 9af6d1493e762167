"""`python -P -m simia` is the `simia` command. Without -P, Python imports from the current folder first."""

from simia.cli import main

main()
