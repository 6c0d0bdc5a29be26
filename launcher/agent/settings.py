# SPDX-License-Identifier: Apache-2.0
"""The configuration as planning and defaulting want it. Pure mapping."""

from __future__ import annotations

from launcher.host.config import Config
from launcher.plan.facts import NodeFacts
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import DefaultsSettings


def plan_settings(config: Config) -> PlanSettings:
    """Settings of ``make_plan``."""
    return PlanSettings(
        state_dir=config.state_dir,
        run_dir=config.run_dir,
        allow_emulation=config.allow_emulation,
        live_update=config.live_update,
        pod_bridge=config.network.bridge,
    )


def defaults_settings(config: Config, facts: NodeFacts) -> DefaultsSettings:
    """Settings of ``apply_defaults``: a guest without an architecture gets the host's."""
    return DefaultsSettings(architecture=facts.arch, live_update=config.live_update)
