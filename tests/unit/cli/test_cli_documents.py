# SPDX-License-Identifier: Apache-2.0
"""Files with several documents; Secrets and ConfigMaps."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from launcher.cli.documents import keyed_data, read, split
from launcher.errors import InvalidRequest

TWO = """# Grüße
apiVersion: v1
kind: Secret
metadata: {name: kind, labels: {kind: no}}
stringData: {a: b}
---
kind: VirtualMachineInstance
metadata:
  name: x
--- {kind: ConfigMap, metadata: {name: c}}
"""


def test_one_document_is_passed_on_as_it_is() -> None:
    text = "metadata: {kind: no}\nkind: VirtualMachine\n"
    (document,) = split(text)
    assert (document.kind, document.text) == ("VirtualMachine", text)
    assert split('{"kind": "A"}')[0].kind == "A"
    assert split("- kind: A")[0].kind == ""


def test_several_documents_keep_their_lines() -> None:
    documents = split(TWO)
    assert [d.kind for d in documents] == ["Secret", "VirtualMachineInstance", "ConfigMap"]
    for document in documents:
        assert yaml.safe_load(document.text)["kind"] == document.kind
    assert documents[1].text.splitlines().index("kind: VirtualMachineInstance") == 6
    assert TWO.splitlines()[6] == "kind: VirtualMachineInstance"


@pytest.mark.parametrize("text", ["a: [", "---\na: 1\n---\nb: [", "\t"])
def test_broken_text_is_left_to_the_reader_of_manifests(text: str) -> None:
    assert [(d.kind, d.text) for d in split(text)] == [("", text)]


def test_an_empty_file_is_one_document() -> None:
    assert [d.text for d in split("")] == [""]


def test_secret_and_config_map() -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    secret = f"kind: Secret\nmetadata: {{name: s}}\ndata: {{a: {encoded}}}\nstringData: {{b: plain}}\n"
    assert keyed_data(secret, "Secret") == ("s", {"a": b"\x00\xff", "b": b"plain"})
    config = f"kind: ConfigMap\nmetadata: {{name: c}}\ndata: {{a: text}}\nbinaryData: {{b: {encoded}}}\n"
    assert keyed_data(config, "ConfigMap") == ("c", {"a": b"text", "b": b"\x00\xff"})


@pytest.mark.parametrize(
    "text",
    [
        "kind: ConfigMap\nmetadata: {name: s}",
        "kind: Secret\nmetadata: {}",
        "kind: Secret\nmetadata: {name: s}\ndata: {a: hunter2!}",
        "kind: Secret\nmetadata: {name: s}\nstringData: {a: [hunter2]}",
        "kind: Secret\nmetadata: {name: s}\nstringData: hunter2",
        "hunter2: [",
        "[]",
    ],
)
def test_what_is_no_secret_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        keyed_data(text, "Secret")
    assert "hunter2" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        read(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        read(str(tmp_path / "binary"))
