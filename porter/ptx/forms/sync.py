# SPDX-License-Identifier: Apache-2.0
"""Barriers, fences, mbarriers and warp-wide exchange: PTX ISA 9.0, sections 9.7.13 and 9.7.9.6."""

from __future__ import annotations

from porter.ptx.forms.grammar import Completion, Form, form, ordered_in_scope

_BARRIER = "a:u32(0..15)"
_THREADS = f"b:u32({'|'.join(str(n) for n in range(32, 1025, 32))})"
_SM90 = "sm_90@8.0"
_SMEM = "<space:shared|shared::cta>?"
_SEM = "<sem:release|relaxed>?.<scope:cta|cluster>?"
_WAIT_SEM = "<sem:acquire|relaxed>?.<scope:cta|cluster>?"
_RELAXED = "sem=relaxed: sm_90@8.6"

FORMS: tuple[Form, ...] = (
    # Barriers of the CTA. `bar` is `barrier` with `.aligned`.
    form("bar.cta?.sync", f"{_BARRIER}, {_THREADS}?", "9.7.13.1", issue="cta"),
    form("bar.cta?.arrive", f"{_BARRIER}, {_THREADS}", "9.7.13.1", issue="cta"),
    form("bar.cta?.red.popc.u32", f"=d:u32, {_BARRIER}, {_THREADS}?, c:pred", "9.7.13.1", issue="cta"),
    form("bar.cta?.red.<op:and|or>.pred", f"=p:pred, {_BARRIER}, {_THREADS}?, c:pred", "9.7.13.1", issue="cta"),
    form("barrier.cta?.sync.aligned?", f"{_BARRIER}, {_THREADS}?", "9.7.13.1", issue="cta"),
    form("barrier.cta?.arrive.aligned?", f"{_BARRIER}, {_THREADS}", "9.7.13.1", issue="cta"),
    form(
        "barrier.cta?.red.popc.aligned?.u32",
        f"=d:u32, {_BARRIER}, {_THREADS}?, c:pred",
        "9.7.13.1",
        issue="cta",
    ),
    form(
        "barrier.cta?.red.<op:and|or>.aligned?.pred",
        f"=p:pred, {_BARRIER}, {_THREADS}?, c:pred",
        "9.7.13.1",
        issue="cta",
    ),
    form("bar.warp.sync", "mask:b32", "9.7.13.2", issue="warp"),
    form("barrier.cluster.arrive.<sem:release|relaxed>?.aligned?", "", "9.7.13.3", "sm_90@7.8"),
    form("barrier.cluster.wait.acquire?.aligned?", "", "9.7.13.3", "sm_90@7.8"),
    # Fences.
    form("fence.<sem:sc|acq_rel>?.<scope>", "", "9.7.13.4"),
    form("fence.<sem:acquire|release>.<scope>", "", "9.7.13.4", "sm_90@8.0"),
    form("fence.acquire.sync_restrict::shared::cluster.cluster", "", "9.7.13.4", "sm_90@8.6"),
    form("fence.release.sync_restrict::shared::cta.cluster", "", "9.7.13.4", "sm_90@8.6"),
    form("fence.mbarrier_init.release.cluster", "", "9.7.13.4", _SM90),
    form("fence.proxy.alias", "", "9.7.13.4", "sm_70@7.5"),
    form("fence.proxy.async.<space:global|shared::cta|shared::cluster>?", "", "9.7.13.4", _SM90),
    form("fence.proxy.tensormap::generic.release.<scope>", "", "9.7.13.4", "sm_90@8.3"),
    form("fence.proxy.tensormap::generic.acquire.<scope>", "[&addr], size:imm(128)", "9.7.13.4", "sm_90@8.3"),
    form(
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        "",
        "9.7.13.4",
        "sm_90@8.6",
    ),
    form("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster", "", "9.7.13.4", "sm_90@8.6"),
    form("membar.<level:cta|gl|sys>", "", "9.7.13.4"),
    form("membar.proxy.alias", "", "9.7.13.4", "sm_70@7.5"),
    # Objects in shared memory.
    form(f"mbarrier.init.{_SMEM}.b64", "[=mbar@space], count:u32", "9.7.13.15.9", "sm_80@7.0"),
    form(f"mbarrier.inval.{_SMEM}.b64", "[=mbar@space]", "9.7.13.15.10", "sm_80@7.0"),
    form(
        "mbarrier.<op:expect_tx|complete_tx>.<sem:relaxed>?.<scope:cta|cluster>?.<space:shared|shared::cta|shared::cluster>?"
        ".b64",
        "[+mbar@space], tx:u32",
        "9.7.13.15.11",
        _SM90,
        rule=ordered_in_scope,
    ),
    *(
        row
        for verb, section in (("arrive", "9.7.13.15.13"), ("arrive_drop", "9.7.13.15.14"))
        for row in (
            form(
                f"mbarrier.{verb}.{_SEM}.{_SMEM}.b64",
                "=state:b64, [+mbar@space], count:u32?",
                section,
                "sm_80@7.0",
                "sem: sm_90@8.0",
                _RELAXED,
                rule=ordered_in_scope,
            ),
            form(
                f"mbarrier.{verb}.expect_tx.{_SEM}.{_SMEM}.b64",
                "=state:b64, [+mbar@space], tx:u32",
                section,
                _SM90,
                _RELAXED,
                rule=ordered_in_scope,
            ),
            # Another CTA's barrier returns no state.
            form(
                f"mbarrier.{verb}.{_SEM}.<space:shared::cluster>.b64",
                "=state:none, [+mbar@space], count:u32?",
                section,
                _SM90,
                _RELAXED,
                rule=ordered_in_scope,
            ),
            form(
                f"mbarrier.{verb}.expect_tx.{_SEM}.<space:shared::cluster>.b64",
                "=state:none, [+mbar@space], tx:u32",
                section,
                _SM90,
                _RELAXED,
                rule=ordered_in_scope,
            ),
            form(
                f"mbarrier.{verb}.noComplete.<sem:release>?.<scope:cta>?.{_SMEM}.b64",
                "=state:b64, [+mbar@space], count:u32",
                section,
                "sm_80@7.0",
                rule=ordered_in_scope,
            ),
        )
    ),
    form(
        f"mbarrier.test_wait.{_WAIT_SEM}.{_SMEM}.b64",
        "=done:pred, [mbar@space], state:b64",
        "9.7.13.15.16",
        "sm_80@7.0",
        _RELAXED,
        awaits=Completion.MBARRIER_TX,
        rule=ordered_in_scope,
    ),
    form(
        f"mbarrier.test_wait.parity.{_WAIT_SEM}.{_SMEM}.b64",
        "=done:pred, [mbar@space], parity:u32(0|1)",
        "9.7.13.15.16",
        "sm_80@7.1",
        _RELAXED,
        awaits=Completion.MBARRIER_TX,
        rule=ordered_in_scope,
    ),
    form(
        f"mbarrier.try_wait.{_WAIT_SEM}.{_SMEM}.b64",
        "=done:pred, [mbar@space], state:b64, hint:u32?",
        "9.7.13.15.16",
        "sm_90@7.8",
        _RELAXED,
        awaits=Completion.MBARRIER_TX,
        rule=ordered_in_scope,
    ),
    form(
        f"mbarrier.try_wait.parity.{_WAIT_SEM}.{_SMEM}.b64",
        "=done:pred, [mbar@space], parity:u32(0|1), hint:u32?",
        "9.7.13.15.16",
        "sm_90@7.8",
        _RELAXED,
        awaits=Completion.MBARRIER_TX,
        rule=ordered_in_scope,
    ),
    form("mbarrier.pending_count.b64", "=count:b32, state:b64", "9.7.13.15.17", "sm_80@7.0"),
    # Across the lanes of a warp.
    form(
        "shfl.sync.<mode:up|down|bfly|idx>.b32",
        "=d:b32|=p:pred?, a:b32, b:b32, c:b32, mask:b32",
        "9.7.9.6",
        issue="warp",
    ),
    form("vote.sync.<mode:all|any|uni>.pred", "=d:pred, a:pred, mask:b32", "9.7.13.9", issue="warp"),
    form("vote.sync.ballot.b32", "=d:b32, a:pred, mask:b32", "9.7.13.9", issue="warp"),
    form("match.any.sync.<type:b32|b64>", "=d:b32, a:type, mask:b32", "9.7.13.10", "sm_70@6.0", issue="warp"),
    form(
        "match.all.sync.<type:b32|b64>",
        "=d:b32|=p:pred?, a:type, mask:b32",
        "9.7.13.10",
        "sm_70@6.0",
        issue="warp",
    ),
    form("activemask.b32", "=d:b32", "9.7.13.11"),
    form(
        "redux.sync.<op:add|min|max>.<type:u32|s32>",
        "=d:type, a:type, mask:b32",
        "9.7.13.12",
        "sm_80@7.0",
        issue="warp",
    ),
    form("redux.sync.<op:and|or|xor>.b32", "=d:b32, a:b32, mask:b32", "9.7.13.12", "sm_80@7.0", issue="warp"),
    form(
        "redux.sync.<op:min|max>.abs?.NaN?.f32",
        "=d:f32, a:f32, mask:b32",
        "9.7.13.12",
        "sm_100a@8.6 sm_100f@8.8",
        issue="warp",
    ),
    form("elect.sync", "=d:b32|=p:pred, mask:b32", "9.7.13.14", _SM90, issue="warp"),
    # Between grids and clusters.
    form("griddepcontrol.<action:launch_dependents|wait>", "", "9.7.13.13", "sm_90@7.8"),
    form(
        "clusterlaunchcontrol.try_cancel.async.<space:shared::cta>?.mbarrier::complete_tx::bytes"
        ".multicast::cluster::all?.b128",
        "[=response@space], [+mbar@space]",
        "9.7.13.17",
        "sm_100@8.6",
        "multicast_cluster_all: sm_100a@8.6 sm_101a@8.6 sm_120a@8.7 sm_100f@8.8 sm_101f@8.8 sm_120f@8.8 sm_110f@9.0",
        completion=Completion.MBARRIER_TX,
    ),
    form(
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
        "=p:pred, response:b128",
        "9.7.13.18",
        "sm_100@8.6",
    ),
    form(
        "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128",
        "=d:b32*4, response:b128",
        "9.7.13.18",
        "sm_100@8.6",
    ),
    form(
        "clusterlaunchcontrol.query_cancel.<which:get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z>.b32.b128",
        "=d:b32, response:b128",
        "9.7.13.18",
        "sm_100@8.6",
    ),
)
