"""Tasks from chains of tools: the chain as executable code, the state it runs in, the user's words, and the tools around it."""
