# SPDX-License-Identifier: Apache-2.0
"""Flags and typed parameters of a migration."""

from __future__ import annotations

import libvirt
import pytest

from launcher.errors import Bug
from launcher.hypervisor.migrate import migrate_flags, typed_params
from launcher.hypervisor.port import MigrateFlag, MigrateParams


def test_flags_become_bits() -> None:
    flags = frozenset({MigrateFlag.LIVE, MigrateFlag.POSTCOPY, MigrateFlag.TLS})
    bits = migrate_flags(MigrateParams(destination_uri="u", flags=flags))
    assert bits == (
        libvirt.VIR_MIGRATE_LIVE
        | libvirt.VIR_MIGRATE_PEER2PEER
        | libvirt.VIR_MIGRATE_POSTCOPY
        | libvirt.VIR_MIGRATE_TLS
    )


def test_every_flag_has_a_bit_of_its_own() -> None:
    bits = {
        migrate_flags(MigrateParams(destination_uri="u", flags=frozenset({flag}))) for flag in MigrateFlag
    }
    assert len(bits) == len(MigrateFlag)


def test_what_is_not_set_is_left_to_libvirt() -> None:
    assert typed_params(MigrateParams(destination_uri="u")) == {}


def test_every_parameter_has_libvirts_name() -> None:
    params = MigrateParams(
        destination_uri="u",
        migrate_uri="tcp://10.0.0.2:49152",
        flags=frozenset({MigrateFlag.NON_SHARED_INC}),
        destination_xml="<domain/>",
        persistent_xml="<domain a=''/>",
        bandwidth_mib=64,
        parallel_connections=4,
        migrate_disks=("vda", "sdb"),
        detect_zeroes=("vda",),
        disks_uri="unix:///disks",
        compression="zstd",
        tls_destination="node-b",
    )
    assert typed_params(params) == {
        "migrate_uri": "tcp://10.0.0.2:49152",
        "destination_xml": "<domain/>",
        "persistent_xml": "<domain a=''/>",
        "bandwidth": 64,
        "parallel.connections": 4,
        "migrate_disks": ["vda", "sdb"],
        "migrate_disks_detect_zeroes": ["vda"],
        "disks_uri": "unix:///disks",
        "compression": "zstd",
        "tls.destination": "node-b",
    }


def test_a_block_migration_of_unnamed_disks_is_never_asked_for() -> None:
    params = MigrateParams(destination_uri="u", flags=frozenset({MigrateFlag.NON_SHARED_INC}))
    with pytest.raises(Bug, match="must name its disks"):
        typed_params(params)
