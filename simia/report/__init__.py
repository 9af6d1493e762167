"""Reports on a run: figures, tables for the terminal, one self-contained HTML page, and the live panel."""
