# SPDX-License-Identifier: Apache-2.0
"""Instructions by which threads read or write shared memory themselves, as far as their names tell (PTX ISA 9.7.9)."""

import re

SHARED_ACCESS = re.compile(
    r"\b(?:ld|st|atom|red)\.(?![\w:.]*\b(?:global|param|const|local)\b)|\b(?:ld|st)matrix\b"
    r"|\bcp\.async\.(?!bulk|commit_group|wait|mbarrier)|\bcp\.(?:reduce\.)?async\.bulk\.[\w:.]*\bglobal\.shared"
)
"""Found in the text of an asm statement. Memory of no named kind counts: it may be shared. `cp.async.bulk` into shared
memory does not: its bytes count on an mbarrier."""
