"""A home and a project to read configurations from, apart from the machine's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jackline.config import Config, HomeFolders, load
from jackline.config.files import read_named
from jackline.config.project import ConsentRecord


@dataclass(frozen=True, slots=True)
class Machine:
    """Folders under one temporary one."""

    root: Path

    @property
    def project(self) -> Path:
        return self._made("project")

    @property
    def folders(self) -> HomeFolders:
        return HomeFolders(config=self._made("home/config"), state=self.root / "home" / "state")

    def write(self, text: str, name: str = "jackline.toml") -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def write_own(self, text: str, name: str = "jackline.toml") -> Path:
        path = self.folders.config / name
        path.write_text(text, encoding="utf-8")
        return path

    def trust(self, path: Path) -> None:
        """Agree to what stands in this project's file now."""
        file = read_named(path, of_project=True)
        assert file is not None
        ConsentRecord(self.folders.state).agree(file, at=0.0)

    def load(
        self,
        *,
        flags: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        with_secrets: bool = True,
        **variables: str,
    ) -> Config:
        return load(
            flags=flags,
            environ={**(environ or {}), **variables},
            cwd=cwd or self.project,
            folders=self.folders,
            with_secrets=with_secrets,
        )

    def _made(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
