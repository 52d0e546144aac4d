"""Errors that a person can act on: what was expected, what came, what to do."""


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with 2; no traceback."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        # One line, whatever a library put into its message.
        super().__init__(" ".join((f"{message}; hint: {hint}" if hint else message).split()))


class ConfigError(UserError, ValueError):
    """A setting that cannot work."""


class CheckpointError(UserError):
    """A checkpoint that is damaged, foreign, or of a newer format. Nothing was overwritten."""


class DivergedError(Exception):
    """The loss became NaN or infinite. The run was saved before this was raised."""

    exit_code = 3

    def __init__(self, update: int, loss: float) -> None:
        super().__init__(
            f"the loss became {loss} at update {update}; the run is saved as it was; "
            "hint: lower --learning-rate, set --grad-clip 10, or leave out bfloat16 (--without bfloat16)"
        )
        self.update = update


class PlayerDied(Exception):
    """The process that plays died and was not to be revived. The run was saved before this was raised."""

    exit_code = 4

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(" ".join(message.split()))
        self.trace = trace  # the player's own traceback, where it could still tell
