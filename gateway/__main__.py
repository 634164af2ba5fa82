"""`python -m gateway` is `lockgate`."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="lockgate")
