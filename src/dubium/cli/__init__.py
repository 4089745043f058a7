"""The `dubium` command: one file per subcommand, and mistakes reported in a sentence instead of a traceback."""

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import dubium
from dubium.cli import data, evaluate
from dubium.cli._failures import describe_failure
from dubium.cli._manual import EPILOG, HELP
from dubium.cli._options import ManyValues, ManyWeights
from dubium.cli._text import printable
from dubium.cli.compare import compare
from dubium.cli.demo import demo
from dubium.cli.explain import explain
from dubium.cli.export import export
from dubium.cli.report import report
from dubium.cli.reproduce import reproduce
from dubium.cli.serve import serve
from dubium.cli.train import train
from dubium.cli.train_vae import train_vae
from dubium.cli.uncertainty import uncertainty
from dubium.errors import DubiumError, DubiumWarning

KEPT = "\n\t"  # of a message
NEAR = 0.75  # of difflib's measure, from 0 to 1


class Commands(TyperGroup):
    """Prints what dubium raises on purpose, and what the system refuses, as one message, with exit code 2; other errors
    end with 3."""

    def get_params(self, ctx: Any) -> Any:
        """Its flags are False where they are not given: typer would import pydantic to find that None is no bool."""
        params = super().get_params(ctx)
        for param in params:
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse a word that is not text, and one without letters: a shell makes it of a variable without a value."""
        for before, word in zip(["", *args], args, strict=False):
            if word.encode(errors="replace").decode() != word:
                raise typer.BadParameter(f"{word!a} is not UTF-8, as everything that results hold has to be.")
            option = word.removesuffix("=") if word.startswith("--") and word.endswith("=") else ""
            if option or not word.strip():  # `--out=`, `--out ""`
                place = option or (before if before.startswith("-") else "")
                after = f"{place} is empty" if place else "One of the words is empty"
                raise typer.BadParameter(
                    f"{after}. Give it a value, or leave it out (a shell's variable may have none)."
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a character that the terminal lacks would be an error
        try:
            with say_warnings():
                return super().invoke(ctx)
        except DubiumError as error:
            typer.echo(f"dubium: {printable(error, keep=KEPT)}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as stopped:
            typer.echo("dubium: stopped. What is whole is kept; the same command goes on from there.", err=True)
            raise typer.Exit(130) from stopped
        except Exception as error:
            if hasattr(error, "exit_code") or isinstance(error, BrokenPipeError):  # typer's own: a wrong flag, an exit
                keep_near_options(error)
                raise
            failure = describe_failure(error)
            if failure is not None:
                typer.echo(f"dubium: {printable(failure, keep=KEPT)}", err=True)
                raise typer.Exit(2) from error
            traceback.print_exc()
            raise typer.Exit(3) from error


@contextmanager
def say_warnings() -> Iterator[None]:
    """Within, a warning of dubium's is said in a line, once; Python would name a place in the code of this command."""
    said, show = set[str](), warnings.showwarning

    def say(message: Warning | str, category: type[Warning], *place: Any, **where: Any) -> None:
        if not issubclass(category, DubiumWarning):
            show(message, category, *place, **where)
        elif str(message) not in said:
            said.add(str(message))
            typer.echo(f"dubium: {printable(message, keep=KEPT)}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = say
        yield


def keep_near_options(error: Any) -> None:
    """Of the options that a typing mistake may have meant, those that are close to it."""
    if getattr(error, "possibilities", None):
        error.possibilities = get_close_matches(error.option_name, error.possibilities, n=2, cutoff=NEAR)


def show_version(wanted: bool) -> bool:
    if wanted:
        print(f"dubium {dubium.__version__}")
        raise typer.Exit
    return wanted


def top_level(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Print dubium's version.")
    ] = False,
) -> None: ...


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help=HELP,
    epilog=EPILOG,
)
app.callback()(top_level)
app.command("demo")(demo)
app.command("explain", cls=ManyValues)(explain)
app.command("uncertainty", cls=ManyValues)(uncertainty)
app.command("compare", cls=ManyValues)(compare)
app.command("report")(report)
app.command("export")(export)
app.command("serve", cls=ManyValues)(serve)
app.add_typer(data.app, name="data")
app.add_typer(evaluate.app, name="evaluate")
app.command("reproduce", cls=ManyWeights)(reproduce)
app.command("train")(train)
app.command("train-vae")(train_vae)
