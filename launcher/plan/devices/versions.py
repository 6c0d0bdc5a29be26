# SPDX-License-Identifier: Apache-2.0
"""Since which release libvirt can express what devices use. Numbers only, from libvirt's NEWS and schemas."""

from __future__ import annotations

from launcher.plan.facts import version

# <panic model='pvpanic'/>; the schema of 9.0 refuses it.
PVPANIC = version(9, 1)
# blockio@discard_granularity; the schema of 9.0 refuses it.
DISCARD_GRANULARITY = version(9, 6)
# <backend type='passt'/>; the schema of 9.0 has it, and 9.0 refuses it all the same.
PASST = version(9, 1)
# passt behind a vhost-user interface instead of a user one.
PASST_VHOST_USER = version(11, 1)
# reservations@migration; in the schema of 12.8, not in that of 9.0.
RESERVATION_MIGRATION = version(11, 10)
# source/dataStore of a disk: a qcow2 image with its data in another file. In the schema of 12.8; since 10.10.
DATA_STORE = version(10, 10)
