// A result within an output: see table_explorer.js for what its tables can do elsewhere.

import { mounting } from "./table_document.js";
import { TableView } from "./table_view.js";

export const mount = mounting(TableView);
