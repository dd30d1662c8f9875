# SPDX-License-Identifier: Apache-2.0
"""Hopper kernels that nobody here wrote, each as a driver that imports it and a case: quack's GEMMs, FlashAttention's
forward and backward, flashinfer's kernels, and NVIDIA's examples.

`EXTERNAL` lists them by name; `write_case` puts driver and case into a directory, or says what is missing. Run this
file with a directory to write all that are here into it:

    python tests/dsl/external.py DIRECTORY && porter verify --original-only DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

from external_attention import ATTENTION
from external_case import ExternalCase, Missing, root_of
from external_flashinfer import FLASHINFER
from external_gemm import GEMMS
from external_quack import QUACK

EXTERNAL: dict[str, ExternalCase] = {**GEMMS, **QUACK, **ATTENTION, **FLASHINFER}


def write_case(name: str, folder: Path) -> Path:
    """Write a driver with its case; the case's path.

    Raises:
        Missing: what it needs is not here.
    """
    one = EXTERNAL[name]
    root = root_of(one.needs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "driver.py").write_text(one.driver, "utf-8")
    for file, text in one.files.items():
        (folder / file).write_text(text, "utf-8")
    (folder / "case.yaml").write_text(one.case.replace("{root}", str(root)), "utf-8")
    return folder / "case.yaml"


def main() -> int:
    target = Path(sys.argv[1])
    for name in EXTERNAL:
        try:
            print(write_case(name, target / name))
        except Missing as missing:
            print(f"{name}: left out: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
