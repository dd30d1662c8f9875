# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

# kernels.py of the tests of the passes puts small kernels together
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "passes"))
