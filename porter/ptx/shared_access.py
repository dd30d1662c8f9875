# SPDX-License-Identifier: Apache-2.0
"""Instructions by which threads read or write shared memory themselves, as far as their names tell (PTX ISA 9.7.9), and
how long they take it up."""

import re
from collections import defaultdict
from collections.abc import Sequence

from porter.ptx.arch import BANK_BYTES, BANKS

SHARED_ACCESS = re.compile(
    r"\b(?:ld|st|atom|red)\.(?![\w:.]*\b(?:global|param|const|local)\b)|\b(?:ld|st)matrix\b"
    r"|\bcp\.async\.(?!bulk|commit_group|wait|mbarrier)|\bcp\.(?:reduce\.)?async\.bulk\.[\w:.]*\bglobal\.shared"
)
"""Found in the text of an asm statement. Memory of no named kind counts: it may be shared. `cp.async.bulk` into shared
memory does not: its bytes count on an mbarrier."""


def rounds(lanes: Sequence[int | None], nbytes: int) -> int:
    """How many rounds an access to shared memory takes, of those that it needs at least, whose lanes access `nbytes`
    each at these addresses: lanes go in groups that access 128 bytes (PTX ISA)."""
    together = BANKS * BANK_BYTES // max(nbytes, BANK_BYTES)
    most = 1
    for first in range(0, len(lanes), together):
        words: dict[int, set[int]] = defaultdict(set)
        for start in lanes[first : first + together]:
            for at in range(start, start + max(nbytes, 1), BANK_BYTES) if start is not None else ():
                words[at // BANK_BYTES % BANKS].add(at // BANK_BYTES)
        most = max(most, *(len(found) for found in words.values()))
    return most
