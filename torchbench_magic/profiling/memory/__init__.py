"""Memory of a profile: what is allocated on which line, who holds it, what the highest moment is made of."""
