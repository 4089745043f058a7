"""`python -m dubium` is the command `dubium`."""

from dubium.cli import app

if __name__ == "__main__":
    app(prog_name="dubium")
