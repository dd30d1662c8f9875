# SPDX-License-Identifier: Apache-2.0
"""The blocks of a launch that have not started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Pending:
    """A launch's blocks that have not started: those from number `first` on, in launch order, up to `total`."""

    first: int
    total: int

    def take(self, count: int) -> range:
        """The next `count` blocks, or those that are left."""
        taken = range(self.first, min(self.first + count, self.total))
        self.first = taken.stop
        return taken
