"""`python -m headwater` is `headwater`."""

from headwater.console.main import app

if __name__ == "__main__":
    app(prog_name="headwater")
