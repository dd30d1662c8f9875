# SPDX-License-Identifier: Apache-2.0
"""All variants: the modules register theirs when they are imported."""

import dsl_variants_accumulators
import dsl_variants_groups
import dsl_variants_operands
import dsl_variants_warpgroups
from dsl_variant_types import VARIANTS

__all__ = [
    "VARIANTS",
    "dsl_variants_accumulators",
    "dsl_variants_groups",
    "dsl_variants_operands",
    "dsl_variants_warpgroups",
]
