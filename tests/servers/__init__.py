"""Real servers for tests, and a proxy that makes trouble between them and a client."""
