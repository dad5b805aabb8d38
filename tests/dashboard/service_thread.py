"""A whole gateway in a thread of its own, for a browser that runs in the test's thread.

Rules: (1) the real service on a real port; (2) what a test does inside it, it does on its loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from jackline import event_loop
from jackline.assembly import Service
from jackline.config import Config
from jackline.gateway.settings import GatewaySettings, LimitSettings, ListenSettings
from jackline.journal.store import JournalSettings
from jackline.providers.settings import UpstreamSettings

T = TypeVar("T")
PATIENCE = 120.0  # only a test that fails ever waits so long


class ServiceThread:
    """`with` starts and ends it."""

    def __init__(
        self,
        folder: Path,
        *upstreams: str,
        read_only: bool = False,
        port: int = 0,
        token: str | None = None,
    ) -> None:
        listen = ListenSettings(port=port, read_only=read_only, token=token)
        first, *others = upstreams or ("http://127.0.0.1:9",)
        given = (
            UpstreamSettings(url=first),
            *(UpstreamSettings(name=f"other{n}", url=url) for n, url in enumerate(others)),
        )
        limits = LimitSettings(drain=0.2)
        settings = GatewaySettings(listen=listen, upstreams=given, limits=limits)
        self.folder = folder / "state"
        self._config = Config(settings, self.folder, JournalSettings(), "error", {}, ())
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service")
        self._failed: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self.service.stop_asked.set)
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return self.service.url

    @property
    def token(self) -> str:
        return self.service._token

    def change_token(self, token: str) -> None:
        """As a changed configuration file does."""

        def change(service: Service) -> None:
            settings = service.desk.settings
            service.desk.settings = replace(settings, listen=replace(settings.listen, token=token))

        self.do(change)

    def do(self, work: Callable[[Service], T]) -> T:
        """Do something on the service's own loop."""

        async def doing() -> T:
            return work(self.service)

        return self.wait(doing())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that runs on the service's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:
            self._failed = error
            self._ready.set()
            raise

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        config = replace(self._config)
        async with Service(config) as self.service:
            self._ready.set()
            await self.service.stop_asked.wait()
