# SPDX-License-Identifier: Apache-2.0
"""Probes of real guests, over the network and by a guest agent; and what a guest is handed at its boot."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from agent_world import client, condition, eventually, is_true, leftovers, phase, until, until_gone
from feature_guests import Object, guest, kernel_boot, shell
from network_guests import masqueraded

from launcher.cli.client import Client
from launcher.errors import InvalidRequest
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1.types_pb2 import Companions, KeyedData

pytestmark = pytest.mark.node

# Enough of qemu-ga for a ping: it answers with the id of the question, or with nothing.
# It reads on when there is nothing to read: the port ends while nobody is connected to it outside.
GUEST_AGENT = (
    "(exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0; while :; do while read -r line <&3; do "
    'id=$(echo "$line" | sed -n \'s/.*"id": *\\([0-9]*\\).*/\\1/p\'); '
    'echo "{\\"return\\": ${id:-{\\}}}" >&3; done; sleep 0.2; done) & echo $! >/tmp/agent'
)


# Another that takes keys and passwords, and remembers what it was told.
CREDENTIALS_AGENT = (
    "(exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0; while :; do while read -r line <&3; do "
    'answer="{}"; case "$line" in '
    '*guest-info*) answer=\'{"version": "7.2.0", "supported_commands": [{"enabled": true, "name": '
    '"guest-ssh-add-authorized-keys", "success-response": true}]}\';; '
    '*guest-s[es]*-*) echo "$line" >>/tmp/told;; '
    '*) answer=$(echo "$line" | sed -n \'s/.*"id": *\\([0-9]*\\).*/\\1/p\');; esac; '
    'echo "{\\"return\\": ${answer:-{\\}}}" >&3; done; sleep 0.2; done) & echo $! >/tmp/agent'
)


@pytest.fixture(scope="module")
def node(needs_nodes: None) -> Iterator[Node]:
    with Lab(names=("a",)) as lab:
        lab.start_agents()
        yield lab.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    with client(node) as agent:
        yield agent
        names = [instance["metadata"]["name"] for instance in agent.instances.list()]
        for name in names:
            agent.instances.delete(name, namespace="default", grace_period_s=0)
        for name in names:
            until_gone(agent, name)
        assert leftovers(node) == []


def readiness(vmi: Object) -> tuple[str, str]:
    """Status and reason of the condition Ready."""
    found = condition(vmi, "Ready") or {}
    return str(found.get("status")), str(found.get("reason", ""))


def test_a_guest_is_ready_while_its_port_answers(agent: Client, node: Node, guest_image: Image) -> None:
    probe = {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1, "failureThreshold": 2}
    manifest = masqueraded(guest_image, "web", readinessProbe=probe)
    interface = manifest["spec"]["domain"]["devices"]["interfaces"][0]
    interface["ports"] = [{"name": "web", "port": 80}]
    agent.instances.create(manifest)
    until(agent, "web", lambda vmi: readiness(vmi) == ("False", "ReadinessProbePending"))
    with shell(agent, "web") as inside:
        eventually("a lease", lambda: "inet " in inside.run("ip addr show eth0"))
        inside.run("mkdir /www; echo hello >/www/index.html; httpd -p 80 -h /www")
        until(agent, "web", lambda vmi: is_true(vmi, "Ready"))
        inside.run("killall httpd")
        vmi = until(agent, "web", lambda vmi: readiness(vmi) == ("False", "ReadinessProbeFailed"))
        assert phase(vmi) == "Running"
        inside.run("httpd -p 80 -h /www")
        until(agent, "web", lambda vmi: is_true(vmi, "Ready"))


def test_a_guest_whose_agent_falls_silent_is_ended(agent: Client, node: Node, guest_image: Image) -> None:
    ping = {"guestAgentPing": {}, "periodSeconds": 1, "timeoutSeconds": 1}
    manifest = guest(
        "pinged",
        memory="128Mi",
        domain={"firmware": {"kernelBoot": kernel_boot(guest_image)}},
        readinessProbe=ping,
        livenessProbe={**ping, "failureThreshold": 3, "initialDelaySeconds": 15},
    )
    agent.instances.create(manifest)
    with shell(agent, "pinged") as inside:
        inside.run(GUEST_AGENT)
        until(agent, "pinged", lambda vmi: is_true(vmi, "Ready"))
        inside.run("kill $(cat /tmp/agent)")
        vmi = until(agent, "pinged", lambda vmi: phase(vmi) in {"Failed", "Succeeded"})
    assert (phase(vmi), vmi["status"]["reason"]) == ("Failed", "LivenessProbeFailed")
    eventually("its process is gone", lambda: node.run("virsh", "list", "--name").split() == [])


def test_a_guest_is_told_its_keys_and_passwords(agent: Client, node: Node, guest_image: Image) -> None:
    source = {"source": {"secret": {"secretName": "keys"}}}
    words = {"source": {"secret": {"secretName": "words"}}}
    manifest = guest(
        "told",
        memory="128Mi",
        domain={"firmware": {"kernelBoot": kernel_boot(guest_image)}},
        accessCredentials=[
            {"sshPublicKey": {**source, "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}},
            {"userPassword": {**words, "propagationMethod": {"qemuGuestAgent": {}}}},
        ],
    )
    with pytest.raises(InvalidRequest):
        agent.instances.create(manifest)
    secrets = {
        "keys": KeyedData(data={"mine": b"ssh-ed25519 AAAA me"}),
        "words": KeyedData(data={"root": b"open sesame"}),
    }
    agent.instances.create(manifest, Companions(secrets=secrets))

    def credentials(vmi: Object) -> tuple[str, str]:
        found = condition(vmi, "AccessCredentialsSynchronized") or {}
        return str(found.get("status")), str(found.get("reason", ""))

    until(agent, "told", lambda vmi: credentials(vmi) == ("False", "GuestAgentOffline"))
    with shell(agent, "told") as inside:
        inside.run(CREDENTIALS_AGENT)
        until(agent, "told", lambda vmi: credentials(vmi) == ("True", ""))
        told = inside.run("cat /tmp/told")
        assert '["ssh-ed25519 AAAA me"]' in told
        assert base64.b64encode(b"open sesame").decode() in told
        inside.run("kill $(cat /tmp/agent); rm /tmp/told")
        until(agent, "told", lambda vmi: credentials(vmi) == ("False", "GuestAgentOffline"))
        inside.run(CREDENTIALS_AGENT)
        eventually("a new agent is told again", lambda: "guest-set-user" in inside.run("cat /tmp/told"))
    log = node.agent_log()
    assert "the guest has its credentials" in log
    assert not any(secret in log for secret in ("sesame", base64.b64encode(b"open sesame").decode()))


def test_a_guest_finds_its_ignition_configuration(agent: Client, node: Node, guest_image: Image) -> None:
    config = '{"ignition": {"version": "3.4.0"}, "note": "a, b & <c>"}'
    manifest = guest("ignited", memory="128Mi", domain={"firmware": {"kernelBoot": kernel_boot(guest_image)}})
    manifest["metadata"]["annotations"] = {"kubevirt.io/ignitiondata": config}
    uid = agent.instances.create(manifest)["metadata"]["uid"]
    with shell(agent, "ignited") as inside:
        raw = "/sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw"
        assert inside.run(f"cat {raw}") == config
    file = node.layout.outside(f"/var/lib/launcher/instances/{uid}/config.ign")
    assert file.stat().st_mode & 0o777 == 0o600
