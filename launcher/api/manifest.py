# SPDX-License-Identifier: Apache-2.0
"""The manifest in a request -> an object that fits the schema, or everything that does not. Pure.

The rules for instances depend on the node (its architecture, its settings), so the agent applies them;
``placed`` then says where in the text its findings stand.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from google.protobuf.struct_pb2 import Struct
from msgspec.structs import replace

from launcher.api.convert import DEFAULT_NAMESPACE
from launcher.errors import InvalidRequest, InvalidSpec, Violation
from launcher.rpc.struct import to_plain
from launcher.spec.load import LoadedObject, decode_object, load_manifests
from launcher.spec.model import ObjectMeta, VirtualMachineInstance, VirtualMachineInstanceMigration
from launcher.spec.positions import Positions, with_positions
from launcher.spec.rules import check_migration

Thing = TypeVar("Thing", VirtualMachineInstance, VirtualMachineInstanceMigration)


class Request(Protocol):
    """A request with a manifest, as text or as object."""

    @property
    def text(self) -> str: ...
    @property
    def object(self) -> Struct: ...
    @property
    def namespace(self) -> str: ...


def instance(request: Request, given: str | None) -> tuple[VirtualMachineInstance, Positions]:
    """The instance in ``request``; ``given`` is the member of the oneof in use.

    Raises:
        InvalidSpec: with everything that was found.
        InvalidRequest: there is no manifest.
    """
    loaded, vmi = _load(request, given, VirtualMachineInstance)
    return _in_namespace(vmi, request.namespace), loaded.positions


def change(request: Request, given: str | None) -> tuple[VirtualMachineInstance, Positions, str]:
    """``instance``, and the updateVolumesStrategy of a VirtualMachine that has one; raises the same."""
    loaded, vmi = _load(request, given, VirtualMachineInstance)
    return _in_namespace(vmi, request.namespace), loaded.positions, loaded.volumes_strategy


def migration(request: Request, given: str | None) -> VirtualMachineInstanceMigration:
    """The migration in ``request``, checked against all rules; raises as ``instance`` does."""
    loaded, vmim = _load(request, given, VirtualMachineInstanceMigration)
    found = check_migration(vmim)
    if found:
        raise placed(InvalidSpec(found), loaded.positions)
    return _in_namespace(vmim, request.namespace)


def placed(error: InvalidSpec, positions: Positions) -> InvalidSpec:
    """The same error, its findings with line and column."""
    return InvalidSpec(with_positions(error.violations, positions), hint=error.hint)


def _load(request: Request, given: str | None, wanted: type[Thing]) -> tuple[LoadedObject, Thing]:
    if given is None:
        finding = Violation(
            field="manifest", type="FieldValueRequired", message="must be given as text or as object"
        )
        raise InvalidRequest([finding])
    read = _read_object if given == "object" else _read_text
    loaded = read(request)
    if len(loaded) != 1:
        raise _wrong("manifest", f"must hold one {wanted.__name__}, not {len(loaded)} objects")
    found = loaded[0].obj
    if not isinstance(found, wanted):
        raise _wrong("kind", f"must be {wanted.__name__}, not {loaded[0].kind}")
    return loaded[0], found


def _read_object(request: Request) -> tuple[LoadedObject, ...]:
    return (decode_object(to_plain(request.object), judge=True),)


def _read_text(request: Request) -> tuple[LoadedObject, ...]:
    return load_manifests(request.text, judge=True)


def _in_namespace(thing: Thing, namespace: str) -> Thing:
    """``thing`` in the namespace of its manifest, else the request's, else the default one."""
    meta = thing.metadata or ObjectMeta()
    if meta.namespace and namespace and meta.namespace != namespace:
        raise _wrong("metadata.namespace", f"is {meta.namespace!r}, but the request says {namespace!r}")
    return replace(thing, metadata=replace(meta, namespace=meta.namespace or namespace or DEFAULT_NAMESPACE))


def _wrong(field: str, message: str) -> InvalidSpec:
    return InvalidSpec([Violation(field=field, type="FieldValueInvalid", message=message)])
