# SPDX-License-Identifier: Apache-2.0
"""Keys and passwords to bring into the guest."""

from __future__ import annotations

from launcher.spec.model.base import Model


class ConfigDriveSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``ConfigDriveSSHPublicKeyAccessCredentialPropagation``."""


class NoCloudSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``NoCloudSSHPublicKeyAccessCredentialPropagation``."""


class QemuGuestAgentSSHPublicKeyAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``QemuGuestAgentSSHPublicKeyAccessCredentialPropagation``.

    By the guest agent.

    users: users of the guest that get the keys
    """

    users: tuple[str, ...]


class SSHPublicKeyAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """API type ``SSHPublicKeyAccessCredentialPropagationMethod``.

    Exactly one of the three.

    config_drive: in the metadata of the cloud-init config drive
    no_cloud: in the metadata of the cloud-init NoCloud drive
    qemu_guest_agent: by the guest agent, while the guest runs
    """

    config_drive: ConfigDriveSSHPublicKeyAccessCredentialPropagation | None = None
    no_cloud: NoCloudSSHPublicKeyAccessCredentialPropagation | None = None
    qemu_guest_agent: QemuGuestAgentSSHPublicKeyAccessCredentialPropagation | None = None


class AccessCredentialSecretSource(Model, frozen=True, kw_only=True):
    """API type ``AccessCredentialSecretSource``.

    A Secret.

    secret_name: name of the Secret
    """

    secret_name: str


class SSHPublicKeyAccessCredentialSource(Model, frozen=True, kw_only=True):
    """API type ``SSHPublicKeyAccessCredentialSource``.

    Where the keys are.

    secret: a Secret, each value of which is a key
    """

    secret: AccessCredentialSecretSource | None = None


class SSHPublicKeyAccessCredential(Model, frozen=True, kw_only=True):
    """API type ``SSHPublicKeyAccessCredential``.

    SSH keys that may log in.

    propagation_method: how the keys reach the guest
    source: where the keys are
    """

    propagation_method: SSHPublicKeyAccessCredentialPropagationMethod
    source: SSHPublicKeyAccessCredentialSource


class QemuGuestAgentUserPasswordAccessCredentialPropagation(Model, frozen=True, kw_only=True):
    """API type ``QemuGuestAgentUserPasswordAccessCredentialPropagation``."""


class UserPasswordAccessCredentialPropagationMethod(Model, frozen=True, kw_only=True):
    """API type ``UserPasswordAccessCredentialPropagationMethod``.

    How the passwords reach the guest.

    qemu_guest_agent: by the guest agent, while the guest runs
    """

    qemu_guest_agent: QemuGuestAgentUserPasswordAccessCredentialPropagation | None = None


class UserPasswordAccessCredentialSource(Model, frozen=True, kw_only=True):
    """API type ``UserPasswordAccessCredentialSource``.

    Where the passwords are.

    secret: a Secret, whose keys are users and whose values are passwords
    """

    secret: AccessCredentialSecretSource | None = None


class UserPasswordAccessCredential(Model, frozen=True, kw_only=True):
    """API type ``UserPasswordAccessCredential``.

    Passwords of users.

    propagation_method: how the passwords reach the guest
    source: where the passwords are
    """

    propagation_method: UserPasswordAccessCredentialPropagationMethod
    source: UserPasswordAccessCredentialSource


class AccessCredential(Model, frozen=True, kw_only=True):
    """API type ``AccessCredential``.

    Exactly one of the two.

    ssh_public_key: SSH keys that may log in
    user_password: passwords of users
    """

    ssh_public_key: SSHPublicKeyAccessCredential | None = None
    user_password: UserPasswordAccessCredential | None = None
