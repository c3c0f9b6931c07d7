"""Engines of a running ipyparallel cluster: found, looked at, asked to run something of this package, heard.

The way of a run: `cluster.connected` (by the name of a profile or the id of a cluster; without a cluster one line
says how to start one) -> `probing.probe` (every engine as an `Engine`, dead and busy ones too, within a deadline) ->
`probing.why_not` (a reason that an engine cannot serve, or "") -> `sent_names.pack_names` (what the code reads, as
bytes with the size of each name) -> `asking.Asking` (one `Question` an engine, answers as they come; a Ctrl-C becomes
SIGINT on the engines). A question names a function of this package, which runs on the engine:
`asking.Question("pkg.mod:func", {...})`, with plain values and bytes there and back. On the engine
`sent_names.unpack_names` gives the names again, and `sent_cells.known_cells` makes lines stand on the notebook's cells.
"""
