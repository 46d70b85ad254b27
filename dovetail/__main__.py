"""`python -m dovetail` is the `dovetail` command."""

import signal


def main() -> None:
    """The console script's entry. While the command is still being loaded, Ctrl-C just ends it."""
    impatient = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if impatient:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dovetail.cli import main as command

    if impatient:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
