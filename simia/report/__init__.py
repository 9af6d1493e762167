"""What a run made, shown: figures, tables on a terminal, one self-contained page, and the live panel."""
