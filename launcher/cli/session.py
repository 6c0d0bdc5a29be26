# SPDX-License-Identifier: Apache-2.0
"""The global options of one invocation, and the options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from launcher.cli.client import Client

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Where to connect, as whom, and in which namespace."""

    server: str
    namespace: str
    timeout_s: float
    certificate: str = ""
    key: str = ""
    ca: str = ""
    server_name: str = ""

    def arguments(self) -> list[str]:
        """The global options that lead another launcherctl to the same agent."""
        values = {
            "--server": self.server,
            "--namespace": self.namespace,
            "--timeout": f"{self.timeout_s:g}",
            "--tls-cert": self.certificate,
            "--tls-key": self.key,
            "--tls-ca": self.ca,
            "--tls-server-name": self.server_name,
        }
        return [f"{option}={value}" for option, value in values.items() if value]

    def client(self) -> Client:
        """A client of the agent. gRPC is imported only here: half of the commands need no agent."""
        from launcher.cli.client import Client
        from launcher.rpc.channel import TlsFiles

        tls = TlsFiles(certificate=self.certificate, key=self.key, ca=self.ca, server_name=self.server_name)
        return Client(self.server, tls, timeout_s=self.timeout_s)


def current() -> Session:
    """The session of the command that runs."""
    session = click.get_current_context().find_object(Session)
    if session is None:
        raise click.UsageError("this command runs only inside launcherctl")
    return session


def _set_namespace(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    session = context.find_object(Session)
    if value is not None and session is not None:
        context.obj = replace(session, namespace=value)


def namespace_option(function: Function) -> Function:
    """``-n`` after the command's name, as kubectl's users type it."""
    option = click.option(
        "-n",
        "--namespace",
        callback=_set_namespace,
        expose_value=False,
        help="Namespace of the object (default: default).",
    )
    return option(function)


def asked_namespace() -> str:
    """The namespace named with ``-n``; empty when none was: then that of the manifest holds."""
    context: click.Context | None = click.get_current_context()
    while context is not None:
        source = context.get_parameter_source("namespace")
        if source is not None and source is not ParameterSource.DEFAULT:
            return current().namespace
        context = context.parent
    return ""


def file_option(function: Function) -> Function:
    """``-f FILE``."""
    return click.option(
        "-f",
        "--filename",
        "file",
        required=True,
        type=click.Path(allow_dash=True),
        help="YAML or JSON manifest; - reads standard input.",
    )(function)
