from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from rig import System
from test_client import echo

from freeslot import Client, Error, NameLists, Worker


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls(own: System, tmp_path: Path) -> None:
    """Client, worker, what goes beside its connection, and lists trust the given authority alone."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-keyout", str(key), "-out", str(cert), "-subj", "/CN=freeslot", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, check=True, capture_output=True)

    async def main() -> None:
        replica = own.replica("r1", tls={"cert_file": str(cert), "key_file": str(key)})
        url = f"wss://{replica.address}"
        trust = ssl.create_default_context(cafile=str(cert))
        worker = Worker(url, token=own.token, node="secure", tls=trust)
        worker.service("echo")(echo)
        await worker.start()
        async with Client(url, tls=trust) as client:
            large = "x" * 100_000
            assert await surely(client, large) == large
        lists = NameLists(f"https://{replica.address}", tls=trust)
        assert (await lists.check("none", ["a"]))[0].why == "list_unknown"
        worker.stop()
        await worker.wait()

        with pytest.raises(Error) as untrusted:
            await Client(url).connect()
        assert untrusted.value.code == "unavailable" and "certificate" in untrusted.value.message
        stranger = Worker(url, token=own.token, node="stranger")
        stranger.service("echo")(echo)
        with pytest.raises(Error) as refused:  # it does not try again: that does not pass
            await stranger.start()
        assert "certificate" in refused.value.message

    async def surely(client: Client, payload: str) -> object:
        while True:
            try:
                return await client.run("echo", payload)
            except Error as err:  # the replica does not know the node yet
                assert err.code in ("unavailable", "no_matching_node")
                await asyncio.sleep(0.02)

    asyncio.run(main())
