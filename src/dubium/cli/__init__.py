"""The `dubium` command: one file per subcommand, and mistakes reported in a sentence instead of a traceback."""

from typing import Any

import typer
from typer.core import TyperGroup

from dubium.cli import data, evaluate
from dubium.cli.demo import demo
from dubium.cli.train import train
from dubium.cli.train_vae import train_vae
from dubium.errors import DubiumError


class Commands(TyperGroup):
    """Prints what dubium raises on purpose as one message, with exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DubiumError as error:
            typer.echo(f"dubium: {error}", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Which pixels make a Bayesian neural network unsure, and what can be done about it?",
)
app.command("demo")(demo)
app.add_typer(data.app, name="data")
app.add_typer(evaluate.app, name="evaluate")
app.command("train")(train)
app.command("train-vae")(train_vae)
