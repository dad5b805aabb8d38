"""Find the configuration file that lists upstreams, and change it where the user can see it.

Rules: (1) the user's own file is edited, or the one that JACKLINE_CONFIG names; a project's file
only when it is named, since it counts only after `jackline trust`; (2) a change is checked whole
before anything is written, and shown; (3) a file is replaced in one step, so that nobody reads part
of it.
"""

from __future__ import annotations

import difflib
import os
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click

from jackline.config import Config, HomeFolders
from jackline.config.files import (
    FILE_NAME,
    IN_PROJECT_FILE,
    PROJECT_FILE,
    FileText,
    UnusableFileError,
    is_file,
    read_named,
)
from jackline.config.keys import FILE_VARIABLE
from jackline.config.loader import load_alone, preview
from jackline.errors import UnreadableError, UsageError
from jackline.private_files import quoted


@dataclass(frozen=True, slots=True)
class EditedConfigFile:
    """A configuration file that may not be there yet, and the tables around ours in it."""

    path: Path
    text: str
    under: tuple[str, ...]
    of_project: bool = False

    @classmethod
    def find(cls, named: str | None, *, users: bool) -> EditedConfigFile:
        """The named file, else that of JACKLINE_CONFIG unless `users`, else the user's own."""
        own = HomeFolders.of_this_user().config / FILE_NAME
        variable = os.environ.get(FILE_VARIABLE)
        usual = Path(variable).expanduser().absolute() if variable and not users else own
        path = usual if named is None else Path(named).absolute()
        of_project = named is not None and path.resolve() not in (own.resolve(), usual.resolve())
        under = IN_PROJECT_FILE if path.name == PROJECT_FILE else ()
        text = ""
        try:
            if is_file(path):
                read_named(path)
                with path.open(encoding="utf-8", newline="") as file:
                    text = file.read()
        except UnusableFileError as error:
            raise UnreadableError(
                f"{error.path} {error.what}", hint="correct it, then try again"
            ) from error
        return cls(path, text, under, of_project)

    @property
    def has_upstreams(self) -> bool:
        """Whether it lists any."""
        return bool(self.read(self.text).table.get("upstream"))

    def config(self, text: str) -> Config:
        """The configuration of the file with this text, by itself."""
        folders, file = HomeFolders.of_this_user(), self.read(text)
        if self.of_project and (refused := preview(file, folders).ignored.refused):
            raise UsageError(
                f"{self.path} is a project's file, which may not set this: {'; '.join(refused)}",
                hint="leave out --file to edit your own file",
            )
        return load_alone(file, folders)

    def read(self, text: str) -> FileText:
        """The text parsed as this file."""
        table = tomllib.loads(text)
        for name in self.under:
            table = table.get(name, {})
        return FileText(self.path, text, table, self.under, self.of_project)

    def change(self, text: str, *, dry_run: bool) -> None:
        """Show the change to this text, and write it unless it is a dry run."""
        path, lines = str(self.path), text.splitlines()
        diff = difflib.unified_diff(self.text.splitlines(), lines, path, path, lineterm="", n=2)
        for line in diff:
            click.echo(line)
        if dry_run:
            click.echo("nothing is written (--dry-run)", err=True)
            return
        target = self.path.resolve()  # a link stays a link
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                    stream.write(text)
                Path(name).chmod(mode)
                Path(name).replace(target)
            finally:
                Path(name).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}", hint="name another one with --file"
            ) from error
        if self.of_project:
            click.echo(f"written: {path}", err=True)
            click.echo(
                "note:  a project's file counts after you, and everyone else who uses it, agreed to"
                f" it: jackline trust {quoted(path)}",
                err=True,
            )
        else:
            click.echo(f"written: {path}; a running gateway reads it by itself", err=True)
        for name in ("JACKLINE_UPSTREAM", "JACKLINE_UPSTREAM_URL", "JACKLINE_UPSTREAM_PRESET"):
            if os.environ.get(name):
                click.echo(f"note:  {name} is set here, and wins over every file", err=True)
