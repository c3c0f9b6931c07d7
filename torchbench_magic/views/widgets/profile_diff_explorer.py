"""The live form of the difference of two profiles: filter, row limit, and what is selected as rows of its tables."""

from __future__ import annotations

import pandas as pd

from torchbench_magic.results.profiling.profile_diff import ProfileDiff

from ..document import Document
from ..frame_rows import frame_rows
from ..profiling.profile_diff import document, place_in_other
from .explorers import Explorer

__all__ = ["ProfileDiffExplorer"]


class ProfileDiffExplorer(Explorer):
    """Filter the lines and operations of two profiles; ``rows`` are those of ``.lines`` or ``.ops`` selected."""

    result: ProfileDiff

    @property
    def rows(self) -> pd.DataFrame:
        """Rows of ``.lines`` whose place is selected; of ``.ops`` where operations are."""
        lines, ops = self.result.lines, self.result.ops
        chosen = [place_in_other(self.result, row) in self.selection for row in frame_rows(lines)]
        return lines[chosen] if any(chosen) else ops[ops["op"].isin(self.selection)]

    def _build(self) -> Document:
        return document(self.result)
