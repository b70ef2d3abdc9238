"""``python -m tests.kubernetes.kubelet``: is a node until a signal ends it, with all its pods."""

from __future__ import annotations

import argparse
import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.kubernetes.kubelet import images
from tests.kubernetes.kubelet.logs import LogServer, Wanted
from tests.kubernetes.kubelet.node import Node
from tests.kubernetes.kubelet.pod import Host
from tests.kubernetes.kubelet.server import Server


async def main(arguments: argparse.Namespace) -> None:
    """Register the node and run what is bound to it."""
    server = Server(arguments.kubeconfig)
    there = urlsplit(arguments.api or server.url)
    host = Host(
        server=server,
        address=arguments.address,
        directory=arguments.directory / "pods",
        images=images.read(arguments.directory / "images.json"),
        variables={
            "KUBERNETES_SERVICE_HOST": str(there.hostname),
            "KUBERNETES_SERVICE_PORT": str(there.port),
        },
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=server.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(arguments.certificate, arguments.certificate.with_suffix(".key"))

    def find(asked: Wanted) -> tuple[Path, Callable[[], bool]] | None:
        pod = node.find(asked.namespace, asked.pod)
        container = pod.find(asked.container) if pod is not None else None
        if container is None:
            return None
        path = container.log(asked.previous)
        return path, lambda: container.writes_to(path)

    logs, port = await LogServer(find, context).listen(arguments.address)
    node = Node(arguments.name, host, port)
    async with logs:
        await node.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="kubelet", description=__doc__)
    parser.add_argument("name", help="name of the node")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--certificate", type=Path, required=True, help="its key is beside it")
    parser.add_argument("--directory", type=Path, required=True, help="for files of pods")
    parser.add_argument("--address", required=True, help="127.a.b.1; pods have 127.a.b.2 and on")
    parser.add_argument("--api", help="URL at which pods shall find the API server")
    logging.basicConfig(format="%(asctime)s %(message)s")
    asyncio.run(main(parser.parse_args()))
