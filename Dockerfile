# SPDX-License-Identifier: Apache-2.0
# The agent alone. It uses the host's libvirtd through its socket, so that restarting the container never
# touches a guest; QEMU and libvirtd are the host's.
FROM debian:13-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv python3-dev gcc libc6-dev pkg-config libvirt-dev
WORKDIR /src
# First what changes seldom: the agent's dependencies, pinned by version and hash.
COPY requirements-agent.lock .
RUN python3 -m venv /opt/launcher \
 && /opt/launcher/bin/pip install --no-cache-dir --require-hashes -r requirements-agent.lock
COPY pyproject.toml README.md LICENSE ./
COPY launcher launcher
RUN /opt/launcher/bin/pip install --no-cache-dir --no-deps .

FROM debian:13-slim
LABEL org.opencontainers.image.title="launcher" org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 libvirt0 qemu-utils skopeo nftables dnsmasq-base \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/launcher /opt/launcher
ENV PATH=/opt/launcher/bin:$PATH
ENTRYPOINT ["launcherd"]
