# SPDX-License-Identifier: Apache-2.0
"""Devices of a plan, as plain data: what goes into ``<devices>``. Nothing is decided here."""

from __future__ import annotations

import msgspec


class DevicesPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All devices of an instance."""
