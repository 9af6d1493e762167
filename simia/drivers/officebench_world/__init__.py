"""OfficeBench's world, on real files: what `simia import officebench` copies into a pack and the sandbox runs.

It runs with the interpreter of the "office" environment and needs of simia only `simia.kit`. Its modules import each other
relative to this folder, which lies beside the pack's `tools.py`; libraries are imported where they are used, since an
episode has a sandbox of its own and pays for every import.
"""
