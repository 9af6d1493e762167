"""OfficeBench's world on real files. `simia import officebench` copies this folder into a pack; it runs in the sandbox.

It runs with the interpreter of the "office" environment and needs only `simia.kit` of simia. Its modules use relative
imports, since the folder is copied next to the pack's `tools.py`. Libraries are imported at their first use, since each
episode has its own sandbox and would otherwise import all of them.
"""
