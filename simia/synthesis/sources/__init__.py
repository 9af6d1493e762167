"""Read the sources of environments (documents, OpenAPI files, MCP servers, packs, a search function), and the pool of existing packs."""
