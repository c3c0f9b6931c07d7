"""How it looks: a result becomes a `Document`, and a document becomes text, HTML, markdown or a widget.

::

    comparison · profile   result -> Document          (with source and operations for the parts of a profile)
    document · table       the one specification: sentence, tables, doubts, footer
    text · markdown · html · widgets                   the carriers, each driven by the same specification
    static/table.js        draws a document in a browser, for the inline output and for the widget
    static/flame.js · timeline.js      pictures on a canvas; canvas.js and makers.js are what they share
    bundle                 Document -> {"text/plain", "text/html"}, at most 1 MB

Nothing here measures anything, and user text is never markup in any carrier.
"""
