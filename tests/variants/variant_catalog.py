# SPDX-License-Identifier: Apache-2.0
"""All variants: importing the modules that write them down takes them in."""

from __future__ import annotations

import variants_aliases  # noqa: F401
import variants_array_types  # noqa: F401
import variants_batches  # noqa: F401
import variants_callees  # noqa: F401
import variants_calls  # noqa: F401
import variants_claimed  # noqa: F401
import variants_classes  # noqa: F401
import variants_columns  # noqa: F401
import variants_combined  # noqa: F401
import variants_lambdas  # noqa: F401
import variants_lanes  # noqa: F401
import variants_macros  # noqa: F401
import variants_names  # noqa: F401
import variants_objects  # noqa: F401
import variants_placement  # noqa: F401
import variants_qualifiers  # noqa: F401
import variants_shapes  # noqa: F401
import variants_templates  # noqa: F401
import variants_waits  # noqa: F401
import variants_warpgroups  # noqa: F401
from variant_types import VARIANTS as VARIANTS
