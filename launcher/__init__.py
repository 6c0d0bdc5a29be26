# SPDX-License-Identifier: Apache-2.0
"""launcher: the per-node agent that runs virtual machines on libvirt and QEMU/KVM."""

__version__ = "0.1.0"
