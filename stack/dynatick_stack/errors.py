"""What can go wrong with the local stack, each with the exit code that the commands end with.

    StackError            1  something failed; the message says what
    ├── BuildError        1
    ├── DeployError       1
    ├── RefusedError      3  a parameter or name that doesn't exist, or a value out of range
    ├── BusyError         5  another program has the port, or another start is under way
    └── NotRunningError   6  there is no local stack to talk to

The codes are those of the `dynatick` command, of which these commands are a part.
"""


class StackError(Exception):
    exit_code = 1


class BuildError(StackError):
    pass


class DeployError(StackError):
    pass


class RefusedError(StackError):
    exit_code = 3


class BusyError(StackError):
    exit_code = 5


class NotRunningError(StackError):
    exit_code = 6
