# SPDX-License-Identifier: Apache-2.0
"""Rules of cloud-init volumes: one source of user data, one of network data. Their content is never shown."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import CloudInitConfigDriveSource, CloudInitNoCloudSource, LocalObjectReference
from launcher.spec.rules.checks import dns_subdomain, is_base64
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.finding import invalid, required

# Bytes of data written in a manifest, each of user and network data. It is KubeVirt's limit, so that a
# manifest is good there too; secrets are not limited.
LONGEST_INLINE: Final = 2048


def cloud_init(ctx: Context) -> Iterator[Violation]:
    """Cloud-init gets user data or network data, each from one place and of a bounded size."""
    for path, volume in ctx.volumes:
        for name, source in (
            ("cloudInitNoCloud", volume.cloud_init_no_cloud),
            ("cloudInitConfigDrive", volume.cloud_init_config_drive),
        ):
            if source is not None:
                yield from _source(f"{path}.{name}", source)


def _source(path: str, source: CloudInitNoCloudSource | CloudInitConfigDriveSource) -> Iterator[Violation]:
    user = _given(
        ("userData", source.user_data),
        ("userDataBase64", source.user_data_base64),
        ("secretRef", source.secret_ref),
    )
    network = _given(
        ("networkData", source.network_data),
        ("networkDataBase64", source.network_data_base64),
        ("networkDataSecretRef", source.network_data_secret_ref),
    )
    if not user and not network:
        yield required(path, "needs user data: one of userData, userDataBase64, secretRef")
    for given in (user, network):
        if len(given) > 1:
            yield invalid(f"{path}.{given[1]}", None, f"{' and '.join(given)} exclude each other")
    for name, text in (("userData", source.user_data), ("networkData", source.network_data)):
        if text and len(text.encode(errors="replace")) > LONGEST_INLINE:
            yield _too_long(f"{path}.{name}")
    for name, text in (
        ("userDataBase64", source.user_data_base64),
        ("networkDataBase64", source.network_data_base64),
    ):
        if not text:
            continue
        if not is_base64(text):
            yield invalid(f"{path}.{name}", None, "not base64")
        elif len(base64.b64decode(text)) > LONGEST_INLINE:
            yield _too_long(f"{path}.{name}")
    for name, ref in (
        ("secretRef", source.secret_ref),
        ("networkDataSecretRef", source.network_data_secret_ref),
    ):
        if ref is not None:
            yield from dns_subdomain(f"{path}.{name}.name", ref.name, "the name of a secret")


def _given(*values: tuple[str, str | LocalObjectReference | None]) -> tuple[str, ...]:
    return tuple(name for name, value in values if value)


def _too_long(field: str) -> Violation:
    return invalid(
        field, None, f"too long; accepted are at most {LONGEST_INLINE} bytes, a secret may have more"
    )


RULES: tuple[Rule, ...] = (cloud_init,)
