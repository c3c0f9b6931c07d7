"""Why a training loop takes this long: one kind a module, from the phases of its steps."""
