# SPDX-License-Identifier: Apache-2.0
"""Image references, as users write them."""

from __future__ import annotations

import pytest

from launcher.storage.oci.reference import ImageReference, parse_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:/srv/images:v1", ImageReference("oci", "/srv/images", "v1")),
        ("oci:/srv/images", ImageReference("oci", "/srv/images")),
        ("oci:/srv/a:b/images", ImageReference("oci", "/srv/a:b/images")),
        ("oci-archive:/srv/i.tar:v1", ImageReference("oci-archive", "/srv/i.tar", "v1")),
        ("docker://reg.example/a/b:1", ImageReference("docker", "reg.example/a/b:1")),
        ("reg.example/a/b@sha256:00", ImageReference("docker", "reg.example/a/b@sha256:00")),
    ],
)
def test_forms(text: str, expected: ImageReference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize("text", ["", "oci:", "oci:relative/dir", "a b", "docker://", " x"])
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"absolute|expected"):
        parse_reference(text)
