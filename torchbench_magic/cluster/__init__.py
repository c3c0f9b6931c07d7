"""Several processes: engines of a cluster that measure, and the ranks of a job side by side.

The way of a run: `cluster.engines.connected` (by the name of a profile or the id of a cluster; without a cluster one
line says how to start one) -> `cluster.engines.probe` (every engine as an `Engine`, dead and busy ones too, within a
deadline) -> `cluster.engines.why_not` (a reason that an engine cannot serve, or "") -> `cluster.engines.pack_names`
(what the code reads, as bytes with the size of each name) -> `cluster.engines.Asking` (one question an engine,
answers as they come; a Ctrl-C becomes SIGINT on the engines). A question names a function of this package, which runs
on the engine: ``asking.ask(engine, "pkg.mod:func", {...})``, with plain values and bytes there and back. On the engine
`cluster.on_engine.made_names` gives the names again.
"""
