# SPDX-License-Identifier: Apache-2.0
"""Keys and passwords to bring into the guest."""

from __future__ import annotations

from launcher.spec.model.base import Model


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``ConfigDriveSSHPublicKeyAccessCredentialPropagation``."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``NoCloudSSHPublicKeyAccessCredentialPropagation``."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``QemuGuestAgentSSHPublicKeyAccessCredentialPropagation``."""

    users: tuple[str, ...]


class SSHPublicKeyAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """API type ``SSHPublicKeyAccessCredentialPropagationMethod``."""

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None


class AccessCredentialSecretSource(Model, frozen=True, kw_only=True):
    """API type ``AccessCredentialSecretSource``."""

    secret_name: str


class SSHPublicKeyAccessCredentialSource(Model, frozen=True, kw_only=True):
    """API type ``SSHPublicKeyAccessCredentialSource``."""

    secret: AccessCredentialSecretSource | None = None


class SSHPublicKeyAccessCredential(Model, frozen=True, kw_only=True):
    """API type ``SSHPublicKeyAccessCredential``."""

    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod
    source: SSHPublicKeyAccessCredentialSource


class QemuGuestAgentUserPasswordAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``QemuGuestAgentUserPasswordAccessCredentialPropagation``."""


class UserPasswordAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """API type ``UserPasswordAccessCredentialPropagationMethod``."""

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None


class UserPasswordAccessCredentialSource(Model, frozen=True, kw_only=True):
    """API type ``UserPasswordAccessCredentialSource``."""

    secret: AccessCredentialSecretSource | None = None


class UserPasswordAccessCredential(Model, frozen=True, kw_only=True):
    """API type ``UserPasswordAccessCredential``."""

    propagation_method: UserPasswordAccessCredentialPropagationMethod
    source: UserPasswordAccessCredentialSource


class AccessCredential(Model, frozen=True, kw_only=True):
    """API type ``AccessCredential``."""

    ssh_public_key: SSHPublicKeyAccessCredential | None = None
    user_password: UserPasswordAccessCredential | None = None
