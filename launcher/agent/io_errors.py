# SPDX-License-Identifier: Apache-2.0
"""Which volume an I/O error paused a guest for, and whether it may go on. Pure."""

from __future__ import annotations

from dataclasses import dataclass

NO_SPACE = "no-space"
_WORDS = {NO_SPACE: "No space left on device"}
_REASONS = {NO_SPACE: "NoSpace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A volume with an I/O error; ``kind`` is ``no-space`` or ``unspecified``, as QEMU tells them apart.

    ``still`` is what is wrong with ``path`` at present; empty: nothing that can be seen from here.
    """

    name: str
    path: str
    kind: str
    still: str = ""

    @property
    def reason(self) -> str:
        """In one word."""
        return _REASONS.get(self.kind, "IOError")

    @property
    def message(self) -> str:
        """In a sentence, with the text of the error's number."""
        words = _WORDS.get(self.kind, "Input/output error")
        what = f"volume {self.name!r}: {self.path}: {words}" if self.name else words
        return f"{what}; {self.still}" if self.still else what


def may_go_on(troubles: tuple[Trouble, ...]) -> bool:
    """Whether nothing is known to be wrong any more, so that letting the guest run is worth a try."""
    return not any(trouble.still for trouble in troubles)
