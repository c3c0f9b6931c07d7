"""How it looks: a result becomes a `Document`, and a document becomes text, HTML, markdown, JSON or a widget.

Nothing here measures anything, and user text is never markup in any carrier.
"""
