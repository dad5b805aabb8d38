"""`jackline config`: show, check and locate the configuration.

Rules: (1) only reading; (2) secrets are shown as their references; (3) `show` prints a file that
could be used as it is. Imports are late, so that `--help` does not load the validator.
"""

from __future__ import annotations

import json

import click

from jackline.errors import BadConfigError
from jackline.outside_names import printable

_file = click.option("--config", "file", type=click.Path(), help="Use only this jackline.toml.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def config() -> None:
    """Show, check and locate the configuration.

    The first of these that sets a key wins: a flag, a JACKLINE_* variable, the project's file if it
    may set the key (the nearest jackline.toml upwards, or [tool.jackline] in pyproject.toml), your
    own file, the default. JACKLINE_CONFIG names one file to read instead of both files. Every key:
    docs/configuration.md.
    """


@config.command()
@_file
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(file: str | None, origin: bool, as_json: bool) -> None:
    """Print every setting in force here, as a valid configuration file.

    \b
    Examples:
      jackline config show --origin
      jackline config show > new.toml

    Exit codes: 0 shown, 2 the configuration has faults.
    """
    from jackline.cli.gateway_flags import configured, show_warnings  # noqa: PLC0415
    from jackline.config import toml_writer  # noqa: PLC0415

    found = configured({"config": file}, with_secrets=False)
    if as_json:
        document = {
            "schema": "jackline.config/1",
            "files": [str(path) for path in found.files],
            "settings": toml_writer.as_json(found),
            "origins": dict(found.origins),
            "warnings": list(found.warnings),
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(toml_writer.as_toml(found, origins=origin), nl=False)
    show_warnings(found)


@config.command()
def schema() -> None:
    """Print the JSON Schema of jackline.toml, for editors that check and complete it."""
    from jackline.config.toml_writer import json_schema  # noqa: PLC0415

    click.echo(json.dumps(json_schema(), ensure_ascii=False, indent=2))


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def path(as_json: bool) -> None:
    """Print the files that are read, the strongest first, or where your own file would be."""
    from jackline.cli.gateway_flags import configured  # noqa: PLC0415
    from jackline.config import HomeFolders  # noqa: PLC0415
    from jackline.config.files import FILE_NAME  # noqa: PLC0415

    found = configured({}, with_secrets=False)
    users = HomeFolders.of_this_user().config / FILE_NAME
    if as_json:
        files = [str(file) for file in found.files]
        document = {"schema": "jackline.config-path/1", "files": files, "user_file": str(users)}
        click.echo(json.dumps(document, indent=2))
        return
    for file in found.files:
        click.echo(printable(str(file)))
    if not found.files:
        click.echo(f"no file is read; yours would be {printable(str(users))}", err=True)


@config.command()
@_file
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(file: str | None, as_json: bool) -> int:
    """Check the whole configuration, secrets included, and list all faults.

    Exit codes: 0 good, 2 there are faults.
    """
    from jackline.cli.gateway_flags import configured, show_warnings  # noqa: PLC0415

    try:
        found = configured({"config": file})
    except BadConfigError as error:
        if not as_json:
            raise
        document = {"schema": "jackline.config-check/1", "good": False, **error.to_json()}
        click.echo(json.dumps(document, indent=2))
        return error.exit_code
    if as_json:
        good = {"schema": "jackline.config-check/1", "good": True, "faults": []}
        click.echo(json.dumps({**good, "warnings": list(found.warnings)}, indent=2))
        return 0
    show_warnings(found)
    files = (
        ", ".join(printable(str(file)) for file in found.files)
        or "no file, only defaults and variables"
    )
    click.echo(f"good: {files}")
    return 0
