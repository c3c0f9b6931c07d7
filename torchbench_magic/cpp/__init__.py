"""C++ snippets: compiled once, timed by the engine that times Python, counted by the fork server."""
