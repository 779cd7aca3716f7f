"""``task import`` and ``task export``: their options. ``importing`` and ``exporting`` do the work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.bulk.record import FileFormat
from dynatick.bulk.task_definition import PREFIX
from dynatick.cli.arguments import SelectionOptions, Status
from dynatick.cli.exporting import ExportOptions, chosen_format, export_tasks
from dynatick.cli.importing import ImportOptions, import_tasks
from dynatick.cli.session import Session, on_table

if TYPE_CHECKING:
    from dynatick.domain.task import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """How a file in our own format is read, and where its errors go."""

    form: Annotated[
        FileFormat | None, typer.Option("--format", help="Default: by the file's name; of stdin, ndjson.")
    ] = None
    errors: Annotated[str | None, typer.Option(metavar="FILE", help="Where to write the refused lines, as NDJSON.")] = (
        None
    )
    id_prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help=f"The prefix of derived ids, for lines without a taskId. Default: {PREFIX}."),
    ] = None
    drop_state: Annotated[
        bool, typer.Option("--drop-state", help="Ignore the state that an export with --state contains.")
    ] = False
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin at the first line, instead of continuing an interrupted run.")
    ] = False

    def of(self, file: str, *, schedules_only: bool) -> ImportOptions:
        """The options of an import of ``file``."""
        return ImportOptions(
            file=file,
            form=self.form,
            errors=self.errors,
            id_prefix=PREFIX if self.id_prefix is None else self.id_prefix,
            drop_state=self.drop_state,
            restart=self.restart,
            schedules_only=schedules_only,
        )


@on_table
def import_file(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help=".ndjson, .jsonl, .json or .csv; - for stdin.", show_default=False)
    ],
    *,
    options: FileOptions,
) -> None:
    """Insert the tasks of a file, under the table's names (taskId, dueAt …). Existing tasks stay as they are.

    A line with a scheduleExpression becomes a schedule. An interrupted import continues when it is run again; the
    file FILE.progress says where.
    """
    import_tasks(session, options.of(file, schedules_only=False))


@on_table
def export_file(
    session: Session,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help=".ndjson, .jsonl or .csv. Default: stdout.", show_default=False)
    ] = "-",
    *,
    selecting: SelectionOptions,
    status: Status = None,
    form: Annotated[
        FileFormat | None, typer.Option("--format", help="Default: by the file's name; to stdout, ndjson.")
    ] = None,
    state: Annotated[
        bool, typer.Option("--state", help="Also the state of each task: status, error and so on.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, instead of continuing an interrupted run.")
    ] = False,
) -> None:
    """Write the tasks of a bucket, of a range or of a subject to a file that can be imported again.

    An interrupted export continues when it is run again with the same options; the file FILE.progress says where. With
    times relative to now it begins anew.
    """
    client = session.client()
    selection, chosen = selecting.select(client, status=status), chosen_format(form, file)
    table = getattr(client.store, "table", session.table)
    arguments = {"table": table, **selection.words(), "state": state, "format": str(chosen)}
    options = ExportOptions(file=file, form=chosen, arguments=arguments, restart=restart, with_state=state)

    def rows(after: tuple[str, str] | None) -> Iterator[Row]:
        return client.export(selection, after=after)

    export_tasks(rows, options)
