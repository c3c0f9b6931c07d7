// A result within an output that has pictures too: see table_explorer.js for what its tables can do elsewhere.

import { CopiesView } from "./table_copies.js";
import { mounting } from "./table_document.js";

export const mount = mounting(CopiesView);
