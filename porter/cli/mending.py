# SPDX-License-Identifier: Apache-2.0
"""`porter port --mend`: what an original lacks, and its port with it, as edit groups of their own."""

from __future__ import annotations

from pathlib import Path

from porter.diagnostics import Code, PorterError
from porter.lang.sources import is_python
from porter.passes.mending import Additions
from porter.passes.ported import Ported
from porter.verify.builder import Builder
from porter.verify.case import cases_if_any, load_case
from porter.verify.mending import Mender


def mend(ported: Ported, builder: Builder) -> None:
    """Add to a port what its originals lack, as groups of safety `review`; what cannot be placed is named.

    Raises:
        PorterError: BAD_OPTION where no file has a case to run; what binding, compiling and running raise.
    """
    roots = [Path(root.path) for root in ported.roots]
    found = [(root, load_case(path)) for root in roots if not is_python(root) for path in cases_if_any(root)]
    if not found:
        raise PorterError(Code.BAD_OPTION, option="--mend", problem="needs a case beside the kernel, to run it")
    for root, case in found:
        ported.diagnostics += Mender(Additions(ported), root, case, builder).run()
