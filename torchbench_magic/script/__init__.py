"""The entrance of scripts: `compare`, in this process, in fresh ones, on engines, under levers."""
