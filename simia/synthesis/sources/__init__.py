"""Sources of environments: documents, OpenAPI files, MCP servers, packs and a search function, and what a pool of packs has already."""
