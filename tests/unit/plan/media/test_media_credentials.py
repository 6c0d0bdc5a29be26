# SPDX-License-Identifier: Apache-2.0
"""Which user of the guest gets which keys and password, out of Secrets that came beside the instance."""

from __future__ import annotations

import pytest

from launcher.errors import InvalidRequest
from launcher.plan.media.credentials import Login, by_agent, logins
from launcher.plan.media.material import Material
from launcher.spec.load import load_vmi

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain: {memory: {guest: 64Mi}, devices: {}}
  accessCredentials:
    - sshPublicKey:
        source: {secret: {secretName: a}}
        propagationMethod: {qemuGuestAgent: {users: [ann, root]}}
    - sshPublicKey: {source: {secret: {secretName: b}}, propagationMethod: {qemuGuestAgent: {users: [root]}}}
    - sshPublicKey: {source: {secret: {secretName: c}}, propagationMethod: {noCloud: {}}}
    - userPassword: {source: {secret: {secretName: words}}, propagationMethod: {qemuGuestAgent: {}}}
  volumes: [{name: cloud, cloudInitNoCloud: {userData: "#cloud-config"}}]
"""
SECRETS = {
    "a": {"two": b"key 2\n\n  key 3\n", "one": b"key 1"},
    "b": {"k": b"key 4\nkey 1"},
    "c": {"k": b"key 5"},
    "words": {"root": b" secret word\n", "bob": b"other"},
}


def material(**secrets: dict[str, bytes]) -> Material:
    return Material(vmi=load_vmi(MANIFEST), uuid="u", secrets={**SECRETS, **secrets})


def test_keys_of_all_credentials_and_passwords_come_together() -> None:
    assert logins(material()) == (
        Login(user="ann", keys=("key 1", "key 2", "key 3")),
        Login(user="bob", password=b"other"),
        Login(user="root", keys=("key 1", "key 2", "key 3", "key 4"), password=b"secret word"),
    )
    assert "secret word" not in repr(logins(material()))
    assert len(by_agent(load_vmi(MANIFEST))) == 3


def test_a_secret_that_did_not_come_along() -> None:
    vmi = load_vmi(MANIFEST)
    with pytest.raises(InvalidRequest) as caught:
        logins(Material(vmi=vmi, uuid="u", secrets={"a": {}, "b": {}}))
    assert caught.value.violations[0].field == "companions.secrets[words]"


@pytest.mark.parametrize("user", ["../root", "-x", "a b", ""])
def test_a_key_that_names_no_user(user: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        logins(material(words={user: b"hidden"}))
    assert caught.value.violations[0].field == "companions.secrets[words]"
    assert "hidden" not in str(caught.value)
