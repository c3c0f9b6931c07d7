"""How it looks: a result becomes a `Document`, and a document becomes text, HTML, markdown or a widget.

::

    document · table       the one specification: sentence, tables, doubts, footer
    carriers               text, html, markdown, bundle ({"text/plain", "text/html"}, at most 1 MB), page
    timing · counting · profiling      result -> Document, and its pictures
    torch_forms            as torch shows it, and torch's own results
    widgets                the live forms; each is driven by the same specification
    static/table.js        draws a document in a browser, for the inline output and for the widget
    static/flame.js · timeline.js      pictures on a canvas; canvas.js and makers.js are what they share

Nothing here measures anything, and user text is never markup in any carrier.
"""
