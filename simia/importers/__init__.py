"""Import foreign environments as packs. Their data is converted once; their code, if a pack runs it, is not changed."""
