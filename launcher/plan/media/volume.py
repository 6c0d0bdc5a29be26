# SPDX-License-Identifier: Apache-2.0
"""Volume -> its files, for every kind of volume that is generated, and the ACPI tables. Pure."""

from __future__ import annotations

import re

from launcher.errors import Bug, InvalidRequest, InvalidSpec, Violation
from launcher.plan.media.cloud_init import config_drive_files, no_cloud_files
from launcher.plan.media.downward import downward_files
from launcher.plan.media.material import Keyed, Material, MediaFile, missing
from launcher.plan.steps import AnyStep, MakeFiles, MakeIso, WriteAcpiTable
from launcher.spec.model import SysprepSource, Volume

ANSWER_FILES = ("autounattend.xml", "unattend.xml")
"""One of which Windows' setup looks for, in any case."""

# Kubernetes' rule for keys of Secrets and ConfigMaps; they become file names.
_KEY = re.compile(r"(?!\.\.?\Z)[-._a-zA-Z0-9]{1,253}")


def volume_files(material: Material, name: str) -> tuple[MediaFile, ...]:
    """The files of the generated volume ``name``, by path.

    Raises:
        InvalidRequest: a Secret or ConfigMap is missing. InvalidSpec: user data that cannot be decoded.
    """
    volume = next((volume for volume in material.vmi.spec.volumes if volume.name == name), None)
    if volume is None:
        raise Bug(f"the instance has no volume {name!r}")
    return tuple(sorted(_files(material, volume), key=lambda file: file.path))


def acpi_table(material: Material, step: WriteAcpiTable) -> bytes:
    """The table of ``step``: the value of ``slic.bin`` or ``msdm.bin`` in the volume's Secret.

    Raises:
        InvalidRequest: the Secret, or the key in it, is missing.
    """
    volume = next((v for v in material.vmi.spec.volumes if v.name == step.volume), None)
    if volume is None or volume.secret is None or not volume.secret.secret_name:
        raise Bug(f"the volume {step.volume!r} of an ACPI table is no secret")
    name, key = volume.secret.secret_name, f"{step.table}.bin"
    data = material.secret(name, field=f"spec.domain.firmware.acpi.{step.table}NameRef")
    if key not in data:
        raise missing(f"companions.secrets[{name}]", f"the {step.table.upper()} table needs the key {key!r}")
    return data[key]


def require_content(material: Material, steps: tuple[AnyStep, ...]) -> None:
    """Check that the content of all ``steps`` can be made; nothing of it is kept.

    Raises:
        InvalidRequest, InvalidSpec: as ``volume_files``, with everything that was found.
    """
    found: list[Violation] = []
    spec = False
    for step in steps:
        try:
            if isinstance(step, MakeIso | MakeFiles):
                volume_files(material, step.volume)
            elif isinstance(step, WriteAcpiTable):
                acpi_table(material, step)
        except (InvalidRequest, InvalidSpec) as error:
            found += error.violations
            spec = spec or isinstance(error, InvalidSpec)
    if found:
        unique = tuple(dict.fromkeys(found))
        raise InvalidSpec(unique) if spec else InvalidRequest(unique)


def _files(material: Material, volume: Volume) -> tuple[MediaFile, ...]:
    where = f"volume {volume.name!r}"
    if volume.cloud_init_no_cloud is not None:
        return no_cloud_files(material, volume, volume.cloud_init_no_cloud)
    if volume.cloud_init_config_drive is not None:
        return config_drive_files(material, volume, volume.cloud_init_config_drive)
    if volume.config_map is not None:
        wanted, optional = volume.config_map.name or "", bool(volume.config_map.optional)
        place = f"companions.configMaps[{wanted}]"
        return _keyed(place, material.config_map(wanted, field=where, optional=optional))
    if volume.secret is not None:
        wanted, optional = volume.secret.secret_name or "", bool(volume.secret.optional)
        place = f"companions.secrets[{wanted}]"
        return _keyed(place, material.secret(wanted, field=where, optional=optional))
    if volume.downward_api is not None:
        return downward_files(material, volume.downward_api)
    if volume.service_account is not None:
        wanted = volume.service_account.service_account_name or ""
        data = material.service_account(wanted, field=where)
        place = f"companions.serviceAccounts[{wanted}]"
        return _keyed(place, {"namespace": material.namespace.encode(), **data})
    if volume.sysprep is not None:
        return _sysprep(material, volume.name, volume.sysprep)
    raise Bug(f"{where} is of no kind that is generated")


def _sysprep(material: Material, name: str, source: SysprepSource) -> tuple[MediaFile, ...]:
    where = f"volume {name!r}"
    if source.secret is not None:
        place = f"companions.secrets[{source.secret.name}]"
        data = material.secret(source.secret.name or "", field=where)
    else:
        wanted = (source.config_map.name if source.config_map is not None else None) or ""
        place = f"companions.configMaps[{wanted}]"
        data = material.config_map(wanted, field=where)
    if not any(key.lower() in ANSWER_FILES for key in data):
        raise missing(place, f"{where} needs one of the keys {', '.join(ANSWER_FILES)} in it")
    return _keyed(place, data)


def _keyed(place: str, data: Keyed) -> tuple[MediaFile, ...]:
    for key in data:
        if _KEY.fullmatch(key) is None:
            message = "accepted are letters, digits, '-', '_' and '.', at most 253 characters"
            raise InvalidRequest(
                [Violation(field=place, type="FieldValueInvalid", value=key[:80], message=message)]
            )
    return tuple(MediaFile(path=key, data=value) for key, value in data.items())
