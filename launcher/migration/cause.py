# SPDX-License-Identifier: Apache-2.0
"""Why a migration failed, in words for programs. Values only."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why a migration failed, for programs; the sentence for people is ``AttemptRecord.reason``."""

    NONE = ""
    REFUSED = "refused"
    """The target's checks found reasons; they are in the sentence."""
    TARGET_UNREACHABLE = "target-unreachable"
    SOURCE_UNABLE = "source-unable"
    """The source could not even start: no domain, or it does not run."""
    ABORTED = "aborted"
    """By a policy, for a reason without a word of its own."""
    CANCELLED = "cancelled"
    PROGRESS_TIMEOUT = "progress-timeout"
    COMPLETION_TIMEOUT = "completion-timeout"
    STALLED = "stalled"
    LINK = "link"
    """Nothing came over the network any more."""
    HYPERVISOR = "hypervisor"
    """libvirt or QEMU gave up; its words are in the sentence."""
    INTERRUPTED = "interrupted"
    """libvirtd or the agent restarted and the job was gone."""
    HOST_DEVICE = "host-device"
    """The guest did not give a device of its host back; the sentence names it."""
    UTILITY_VOLUMES = "utility-volumes"
    """The instance still had utility volumes when utilityVolumesTimeout was over."""
    GUEST_ENDED = "guest-ended"
    POST_COPY_FAILED = "post-copy-failed"
    """Both halves are kept; neither side alone has the whole guest."""
    CONFLICT = "conflict"
    """The guest seems to run on both sides; nothing was touched."""
    LOST = "lost"
    """The source gave the guest away and the target does not have it, or half of it was lost in post-copy.
    Nothing of it runs any more: it may be started again from its disks, which are as after a crash."""
    UNRESOLVED = "unresolved"
    """Who owns the guest could not be proven in time; nothing was touched."""
