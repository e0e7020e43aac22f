"""``python -m treevae``: the same as the command ``treevae``."""

from .cli.app import app

if __name__ == "__main__":
    app(prog_name="treevae")
