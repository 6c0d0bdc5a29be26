# SPDX-License-Identifier: Apache-2.0
"""The configuration as storage wants it. Pure mapping."""

from __future__ import annotations

from pathlib import Path

from launcher.errors import InvalidRequest, Violation
from launcher.host.config import Config
from launcher.spec.model import Quantity
from launcher.storage.limits import StorageSettings


def storage_settings(config: Config) -> StorageSettings:
    """Settings of the storage executor.

    Raises:
        InvalidRequest: an amount cannot be read.
    """
    storage = config.storage
    return StorageSettings(
        state_dir=Path(config.state_dir),
        run_dir=Path(config.run_dir),
        cache_limit=_amount("storage.cache_limit", storage.cache_limit, least=0),
        max_image=_amount("storage.max_image", storage.max_image, least=1),
        max_virtual_size=_amount("storage.max_virtual_size", storage.max_virtual_size, least=1),
        insecure_registries=storage.insecure_registries,
    )


def _amount(key: str, text: str, *, least: int) -> int:
    try:
        amount = Quantity(text).bytes_floor()
    except ValueError as error:
        raise _invalid(key, text, str(error)) from error
    if amount < least:
        raise _invalid(key, text, f"must be at least {least}")
    return amount


def _invalid(key: str, value: str, message: str) -> InvalidRequest:
    finding = Violation(field=key, type="FieldValueInvalid", value=value[:80], message=message)
    return InvalidRequest([finding], hint="see docs/configuration.md")
