"""How a magic's line and cell are read: options, sections, statements."""
