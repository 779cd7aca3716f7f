"""The commands that deploy a project to AWS: deploy, diff, destroy, template."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick_stack import change_set, declared_schedules, template, waiting_payloads
from dynatick_stack.cli import failures, say
from dynatick_stack.project import OF_HANDLERS, Project, find

if TYPE_CHECKING:
    from dynatick.client import ScheduleChange
    from dynatick_stack.change_set import Change, ChangeSet
    from dynatick_stack.packaging import Packages

deploy_app, diff_app, destroy_app, template_app = (
    typer.Typer(add_completion=False, rich_markup_mode=None) for _ in range(4)
)

Stage = Annotated[str | None, typer.Option(help="A stage of dynatick.toml: a stack of its own, NAME-STAGE.")]
Region = Annotated[str | None, typer.Option(help="The AWS region.", show_default="that of dynatick.toml")]
Profile = Annotated[str | None, typer.Option(help="The AWS profile.")]
Bucket = Annotated[
    str | None, typer.Option(help="A bucket for what is uploaded.", show_default="dynatick-ACCOUNT-REGION")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]

_GOES_ON = "Interrupted; CloudFormation goes on with what it has begun"
_REFUSED = "AWS doesn't do as asked"


@deploy_app.command()
def deploy(
    stage: Stage = None,
    region: Region = None,
    profile: Profile = None,
    bucket: Bucket = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show each setting and where it comes from, and what would change."),
    ] = False,
) -> None:
    """Deploy this project to AWS: show what would change, ask, and do it."""
    with failures(_GOES_ON, of=_REFUSED):
        deployment = _Deployment(stage, region, profile, bucket)
        if dry_run:
            deployment.compare(with_settings=True)
            return
        release, found = deployment.release, deployment.prepare(yes)
        try:
            schedules = deployment.show(found)
            if found.arn is None and not schedules:
                typer.echo(f"{release.stack.name} is up to date")
                return
            failing = deployment.check_waiting(found) if found.arn is not None else 0
            although = f", although {failing} waiting task{'s' * (failing > 1)} will fail" if failing else ""
            question = f"{'Deploy' if found.arn else 'Change the schedules of'} {release.stack.name}{although}?"
            if any(one.result == "conflict" for one in schedules) or not _confirmed(question, yes):
                raise CommandFailed(ExitCode.CONFLICT, "Nothing was deployed")
        except BaseException:  # also an interruption, and the end of the input at the question
            if found.arn is not None:
                change_set.discard(release.stack, found.arn)
            raise
        if found.arn is not None:
            release.carry_out(found, say=say)
        if schedules:
            deployment.sync_schedules()
        typer.echo(f"Deployed {release.stack.name}: table {release.stack.outputs()['TasksTableName']}")


@diff_app.command()
def diff(
    stage: Stage = None,
    region: Region = None,
    profile: Profile = None,
    bucket: Bucket = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit code 7 if there are changes.")] = False,
) -> None:
    """Show what `dynatick deploy` would change. Changes nothing, and asks nothing."""
    with failures(of=_REFUSED):
        has_changes = _Deployment(stage, region, profile, bucket).compare(with_settings=False)
    if exit_code and has_changes:
        raise typer.Exit(ExitCode.FOUND)


@destroy_app.command()
def destroy(stage: Stage = None, region: Region = None, profile: Profile = None, yes: Yes = False) -> None:
    """Delete what was deployed. The table, the dead letters and imported files stay."""
    with failures(_GOES_ON, of=_REFUSED):
        release = _Deployment(stage, region, profile).release
        for kind, name in release.retained():
            typer.echo(f"  stays     {kind:<24} {name}")
        if not _confirmed(f"Delete {release.stack.name}? Its tasks will not run any more", yes):
            raise CommandFailed(ExitCode.CONFLICT, "Nothing was deleted")
        release.destroy(say=say)
        typer.echo(f"Deleted {release.stack.name}")


@template_app.command("template")
def show_template(
    to: Annotated[Path | None, typer.Option(help="Write it into this folder, with the code as zips beside it.")] = None,
    stage: Stage = None,
    transformed: Annotated[
        bool, typer.Option("--transformed", help="Without its SAM transform, to be nested or included.")
    ] = False,
) -> None:
    """Print the template that is deployed, or write all that a pipeline of your own needs."""
    with failures():
        if to is None:
            if transformed:
                raise CommandFailed(ExitCode.USAGE, "--transformed names the code as zips, so it needs --to FOLDER")
            typer.echo(template.TEMPLATE.read_text(encoding="utf-8"), nl=False)
            return
        from dynatick_stack.packaging import checked_parameters, write_folder

        project = find(Path.cwd()).of(stage)
        parameters, files = checked_parameters(project), _files(project, yes=False)
        found = declared_schedules.examine(project, say, files, parameters)
        declared_schedules.declared(project, found, parameters)
        write_folder(project, files, to, is_transformed=transformed, say=say)


class _Deployment:
    """The deployment of this project, for a stage, as the options of a command say."""

    def __init__(self, stage: str | None, region: str | None, profile: str | None, bucket: str | None = None) -> None:
        # Here, since help needs no SDK.
        import boto3

        from dynatick_stack.artifact_bucket import ArtifactBucket
        from dynatick_stack.release import Release

        self.project = find(Path.cwd()).of(stage)
        session = boto3.Session(profile_name=profile, region_name=region or self.project.region)
        if session.region_name is None:
            raise CommandFailed(
                ExitCode.USAGE, "There is no region: set it in dynatick.toml ([stack] region), or --region"
            )
        self.release = Release(session, self.project.name)
        self.bucket = ArtifactBucket(session, bucket or self.project.bucket)
        self._profile = profile
        self._schedules: declared_schedules.Rows = ()  # that are declared, once the handlers were read
        self._options = {"[stack] region": ("--region", region), "[stack] bucket": ("--bucket", bucket)}

    def prepare(self, yes: bool) -> ChangeSet:
        """The change set; asks what is to be asked before one is made."""
        packages = self._packages(_files(self.project, yes=yes))
        if not self.bucket.exists():
            if not _confirmed(f"There is no bucket {self.bucket.name} for what is uploaded. Create it?", yes):
                raise CommandFailed(ExitCode.CONFLICT, "Nothing was deployed")
            self.bucket.create()
        return self.release.prepare(self.project, packages, self.bucket, say=say)

    def compare(self, *, with_settings: bool) -> bool:
        """Shows what would change; before it, what then holds. Returns whether anything would change."""
        stack = self.release.stack
        packages = self._packages(_files(self.project, yes=False, asks=False))
        found = self.release.prepare(self.project, packages, self.bucket, say=say, publishes=False)
        if found.arn is not None:
            change_set.discard(stack, found.arn)
        if with_settings:
            self._show_settings(found)
        has_none = found.arn is None and found.changes is not None
        if found.changes is None:
            typer.echo(
                f"  resources not compared: CloudFormation reads the template from the bucket {self.bucket.name}, "
                "which dynatick deploy creates"
            )
        if not self.show(replace(found, kept={}) if with_settings else found) and has_none:
            typer.echo(f"{stack.name} is up to date")
            return False
        if with_settings:
            self.check_waiting(found)
        return True

    def show(self, found: ChangeSet) -> Sequence[ScheduleChange]:
        """Shows what would change, the schedules after the resources. Returns what differs of the schedules."""
        from dynatick.client.schedule_sync import DRIFT, SyncResult

        if found.arn is not None or found.changes is None:
            _show(found)
        planned = declared_schedules.plan(self.release.stack, self._schedules, profile=self._profile, say=say)
        for one in planned:
            if one.result is not SyncResult.UNCHANGED:
                typer.echo(declared_schedules.line(one))
        return [one for one in planned if one.result in DRIFT]

    def sync_schedules(self) -> None:
        """Does what was shown. Raises CommandFailed for ids that others have taken meanwhile."""
        stack = self.release.stack
        client = waiting_payloads.client_of(stack, profile=self._profile)
        assert client is not None, "it is deployed"
        changes = declared_schedules.sync(client, self._schedules, owner=stack.name)
        if conflicts := [one for one in changes if one.result == "conflict"]:
            raise CommandFailed(ExitCode.CONFLICT, "\n".join(map(declared_schedules.line, conflicts)))

    def check_waiting(self, found: ChangeSet) -> int:
        """Says which waiting tasks the handlers will refuse. Returns how many."""
        return waiting_payloads.check(self.release.stack, found.payload_schemas, profile=self._profile, say=typer.echo)

    def _packages(self, files: Sequence[Path]) -> Packages:
        from dynatick_stack.packaging import Platform, build_packages

        project = self.project
        parameters = self.release.parameters(project, self.bucket.account).values
        # What the processor refuses when it starts would stop every tick there.
        found = declared_schedules.examine(project, say, files, parameters)
        self._schedules = declared_schedules.declared(project, found, parameters)
        packages = build_packages(project, files, Platform.of(parameters["Architecture"]), say=say)
        schemas = {action: schema for action, schema in found.actions.items() if schema is not None}
        return replace(packages, payload_schemas=schemas)

    def _show_settings(self, found: ChangeSet) -> None:
        typer.echo(f"What holds for {self.release.stack.name}:")
        said = {one.name: (one.value, one.source) for one in self.project.settings}
        said |= {name: (value, option) for name, (option, value) in self._options.items() if value is not None}
        kept = {f"[parameters] {name}": (value, "kept: the stack has it") for name, value in found.kept.items()}
        for name, (value, source) in {**said, **kept}.items():
            typer.echo(f"  {name:<40} {value or 'empty':<40} {source}")
        others = template.defaults().keys() - {*self.project.parameters, *found.kept, *OF_HANDLERS}
        typer.echo(f"  {len(others)} other parameters have the defaults of the template")


def _files(project: Project, *, yes: bool, asks: bool = True) -> Sequence[Path]:
    """The files that go to AWS with the handlers. Asks about those that neither git nor the project decides on; ``yes``
    is no answer to that."""
    from dynatick_stack.packaging import named
    from dynatick_stack.project_files import select

    selected = select(project)
    others = [path.relative_to(project.folder).as_posix() for path in (*selected.undecided, *selected.left_out)]
    if selected.left_out:
        say(f"Not packaged, since neither git tracks nor [handlers] include names them: {named(others)}")
    if not selected.undecided:
        return selected.files
    say("\n  ".join(["Not Python, and neither tracked by git nor named by [handlers] include:", *others]))
    if not asks:
        say("dynatick deploy asks whether they go to AWS with the handlers")
    elif yes or not sys.stdin.isatty():
        raise CommandFailed(
            ExitCode.USAGE,
            "Do they go to AWS with the handlers? --yes is no answer to that. Let dynatick.toml name those that they "
            f"need, [handlers] include = {json.dumps(others[:1])}, or none, include = []",
        )
    elif not typer.confirm("Do they go to AWS with the handlers?"):
        raise CommandFailed(ExitCode.CONFLICT, "Nothing was deployed. To go on without them: [handlers] include = []")
    return [*selected.files, *selected.undecided]


def _show(found: ChangeSet) -> None:
    for name, (before, after) in sorted(found.parameters.items()):
        earlier = "" if before is None else f"{before or 'empty'} → "
        typer.echo(f"  parameter {name}: {earlier}{after or 'empty'}")
    for name, value in sorted(found.kept.items()):
        typer.echo(f"  kept      {name}: {value}, which dynatick.toml does not name")
    for one in found.changes or ():
        typer.echo(f"  {one.action.lower():<9} {one.resource:<32} {one.kind:<32} {_replacement(one)}".rstrip())
    if any(one.replacement == "Conditional" for one in found.changes or ()):
        typer.echo(
            "Replaced only if: AWS says Conditional, because it is to change what the resource refers to. A function, "
            "queue or rule that is modified keeps its ARN, and then what refers to it stays as it is"
        )
    if any(one.replacement != "False" and not one.is_kept for one in found.changes or ()):
        typer.echo("A replacement is there before the old one is deleted. Tasks lie in the table: they wait, or go on")
    if found.protects:
        typer.echo("  then      the table is protected against deletion, once all has been created")


def _replacement(change: Change) -> str:
    """What AWS says of a replacement, and what it means; empty if there is none."""
    if change.replacement == "False":
        return ""
    conditions = [f"{' or '.join(change.refers_to)} changes"] if change.refers_to else []
    conditions += [f"{name} can't be changed in place" for name in change.properties]
    only_if = " or ".join(conditions) or "AWS finds no other way"
    when = f"replaced only if {only_if}" if change.replacement == "Conditional" else "replaced"
    return f"{when}; the new one is empty, and the old one stays with what is in it" if change.is_kept else when


def _confirmed(question: str, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed(ExitCode.USAGE, f"{question} There is nobody to ask; --yes answers yes")
    return typer.confirm(question)
