# SPDX-License-Identifier: Apache-2.0
"""Names resolved as C++ resolves them.

Ask `resolver.Names` (`Program.names`): which functions a call reaches, what type an expression has, which class a
declaration names, what a name outside of the sources is called in full.

`index` collects declarations, `lookup` finds names, `declared` and `expressions` give types, `conversions` and
`overloads` choose among functions. Where C++ needs more than the sources tell, every function that may be meant is
kept.
"""
