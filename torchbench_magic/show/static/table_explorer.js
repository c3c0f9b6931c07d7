// A result by itself in an output or a page of its own, or in a widget.

import { mounting } from "./table_document.js";
import { ToolsView } from "./table_tools.js";

export const mount = mounting(ToolsView);
