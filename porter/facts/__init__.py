# SPDX-License-Identifier: Apache-2.0
"""What a compiled entry does, from its PTX: control flow, values by lane, asynchronous events, what orders them."""
