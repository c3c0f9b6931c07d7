"""A document as text, HTML, markdown, mime bundle or page."""
