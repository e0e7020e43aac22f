"""``python -m treevae``: the same as the command ``treevae``."""

from .cli import app

if __name__ == "__main__":
    app(prog_name="treevae")
