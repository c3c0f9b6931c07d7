"""How a magic's line and cell are read: grammar, options, sections, statements."""
