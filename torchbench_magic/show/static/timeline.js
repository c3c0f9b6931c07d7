// The timeline within an output that has other views: see timeline_explorer.js for what one by itself can do.

import { Timeline, mounting } from "./timeline_graph.js";

// Draw spec into the shadow root of el. on(state) is told of every choice: the span in view, the brush (seconds).
export const mount = mounting(Timeline);
