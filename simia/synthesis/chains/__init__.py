"""Make tasks from chains of tools: executable code for a chain, its initial state with distractors, and the user's messages."""
