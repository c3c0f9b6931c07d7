// The flame graph within an output that has other views: see flame_explorer.js for what one by itself can do.

import { FlameGraph, mounting } from "./flame_graph.js";

// Draw spec into the shadow root of el. on(state) is told of every choice: metric, order, zoom, selection.
export const mount = mounting(FlameGraph);
