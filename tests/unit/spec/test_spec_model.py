# SPDX-License-Identifier: Apache-2.0
"""The model is immutable, names its fields as the API does, and every type in it can be read and written."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from launcher.spec import model
from launcher.spec.findings import Findings
from launcher.spec.kinds import KINDS
from launcher.spec.model.base import Model
from launcher.spec.nodes import Mapping
from launcher.spec.path import ROOT
from launcher.spec.violations import read_as

CLASSES = [
    item
    for name, item in vars(model).items()
    if inspect.isclass(item) and issubclass(item, Model) and not name.startswith("_")
]


def test_the_whole_api_is_there() -> None:
    assert len(CLASSES) > 180
    assert {kind.model for kind in KINDS.values()} <= set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_every_type_can_be_read_and_is_frozen(kind: type[Model]) -> None:
    config = kind.__struct_config__
    assert (config.frozen, config.forbid_unknown_fields, config.omit_defaults) == (True, True, True)
    findings = Findings()
    read_as(kind, Mapping([]), ROOT, findings)
    required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
    assert [v.field for v in findings.violations()] == required
    assert {v.type for v in findings.violations()} <= {"FieldValueRequired"}


@pytest.mark.parametrize(
    ("kind", "attribute", "name"),
    [
        (model.Disk, "dedicated_io_thread", "dedicatedIOThread"),
        (model.Devices, "autoattach_vsock", "autoattachVSOCK"),
        (model.GPU, "virtual_gpu_options", "virtualGPUOptions"),
        (model.PodNetwork, "vm_network_cidr", "vmNetworkCIDR"),
        (model.MigrationConfiguration, "completion_timeout_per_gi_b", "completionTimeoutPerGiB"),
        (model.MigrationConfiguration, "disable_tls", "disableTLS"),
        (model.VirtualMachineInstanceMigrationSource, "connect_url", "connectURL"),
        (model.VirtualMachineInstanceStatus, "vsock_cid", "VSOCKCID"),
        (model.VirtualMachineInstanceMigrationState, "migration_uid", "migrationUid"),
        (model.VirtualMachineInstanceMigrationSourceState, "migration_uid", "migrationUID"),
        (model.Volume, "downward_api", "downwardAPI"),
        (model.CloudInitNoCloudSource, "user_data_base64", "userDataBase64"),
        (model.DomainSpec, "io_threads_policy", "ioThreadsPolicy"),
    ],
)
def test_names_that_camel_case_alone_would_not_give(kind: type[Model], attribute: str, name: str) -> None:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    assert names[attribute] == name
