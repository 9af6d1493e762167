"""Import foreign environments as packs: their data is converted once, their code runs as installed and is never copied."""
