"""The commands that deploy a project to AWS: deploy, diff, destroy, template."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick_stack import change_set, template, waiting_payloads
from dynatick_stack.cli import failures
from dynatick_stack.project import Project, find

if TYPE_CHECKING:
    import boto3

    from dynatick_stack.change_set import ChangeSet
    from dynatick_stack.packaging import Packages
    from dynatick_stack.release import Release

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
    stage: Stage = None, region: Region = None, profile: Profile = None, bucket: Bucket = None, yes: Yes = False
) -> None:
    """Deploy this project to AWS: show what would change, ask, and do it."""
    with failures(_GOES_ON, of=_REFUSED):
        project = find(Path.cwd())
        session = _session(project, region, profile)
        release = _release(session, project, stage)
        found = _prepared(session, project, release, stage, bucket, yes)
        if found.arn is None:
            typer.echo(f"{release.stack.name} is up to date")
            return
        _show(found)
        failing = waiting_payloads.check(release.stack, found.payload_schemas, profile=profile, say=typer.echo)
        although = f", although {failing} waiting task{'s' * (failing > 1)} will fail" if failing else ""
        if not _confirmed(f"Deploy {release.stack.name}{although}?", yes):
            change_set.discard(release.stack, found.arn)
            raise CommandFailed(ExitCode.CONFLICT, "Nothing was deployed")
        release.carry_out(found, say=_say)
        typer.echo(f"Deployed {release.stack.name}: table {release.stack.outputs()['TasksTableName']}")


@diff_app.command()
def diff(
    stage: Stage = None,
    region: Region = None,
    profile: Profile = None,
    bucket: Bucket = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit code 7 if there are changes.")] = False,
) -> None:
    """Show what `dynatick deploy` would change. Uploads the code of the template, and changes nothing."""
    with failures(of=_REFUSED):
        project = find(Path.cwd())
        session = _session(project, region, profile)
        release = _release(session, project, stage)
        found = _prepared(session, project, release, stage, bucket, False, publishes=False)
        if found.arn is None:
            typer.echo(f"{release.stack.name} is up to date")
            return
        change_set.discard(release.stack, found.arn)
        _show(found)
    if exit_code:
        raise typer.Exit(ExitCode.FOUND)


@destroy_app.command()
def destroy(stage: Stage = None, region: Region = None, profile: Profile = None, yes: Yes = False) -> None:
    """Delete what was deployed. The table, the dead letters and imported files stay."""
    with failures(_GOES_ON, of=_REFUSED):
        project = find(Path.cwd())
        release = _release(_session(project, region, profile), project, stage)
        for kind, name in release.retained():
            typer.echo(f"  stays     {kind:<24} {name}")
        if not _confirmed(f"Delete {release.stack.name}? Its tasks will not run any more", yes):
            raise CommandFailed(ExitCode.CONFLICT, "Nothing was deleted")
        release.destroy(say=_say)
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
        from dynatick_stack.packaging import write_folder

        write_folder(find(Path.cwd()), to, stage=stage, is_transformed=transformed, say=_say)


def _session(project: Project, region: str | None, profile: str | None) -> boto3.Session:
    # Here, since help needs no SDK.
    import boto3

    session = boto3.Session(profile_name=profile, region_name=region or project.region)
    if session.region_name is None:
        raise CommandFailed(ExitCode.USAGE, "There is no region: set it in dynatick.toml ([stack] region), or --region")
    return session


def _release(session: boto3.Session, project: Project, stage: str | None) -> Release:
    from dynatick_stack.release import Release

    return Release(session, project.stack_of(stage))


def _prepared(
    session: boto3.Session,
    project: Project,
    release: Release,
    stage: str | None,
    bucket: str | None,
    yes: bool,
    *,
    publishes: bool = True,
) -> ChangeSet:
    from dynatick_stack.artifact_bucket import ArtifactBucket

    packages = _packages(project, stage)
    artifacts = ArtifactBucket(session, bucket or project.bucket)
    if not artifacts.exists():
        if not _confirmed(f"There is no bucket {artifacts.name} for what is uploaded. Create it?", yes):
            raise CommandFailed(ExitCode.CONFLICT, "Nothing was deployed")
        artifacts.create()
    return release.prepare(project, packages, artifacts, stage=stage, say=_say, publishes=publishes)


def _packages(project: Project, stage: str | None) -> Packages:
    from dynatick_stack.build import libraries
    from dynatick_stack.dev import handlers
    from dynatick_stack.packaging import Platform, build_packages

    # What can't be imported would stop every tick there.
    found = handlers.check(project, libraries(_say), handlers.requirements(project, _say), project.environment)
    architecture = project.parameters_of(stage).get("Architecture") or template.defaults()["Architecture"]
    packages = build_packages(project, Platform.of(architecture), say=_say)
    return replace(packages, payload_schemas={action: schema for action, schema in found.items() if schema is not None})


def _show(found: ChangeSet) -> None:
    for name, (before, after) in sorted(found.parameters.items()):
        earlier = "" if before is None else f"{before or 'empty'} → "
        typer.echo(f"  parameter {name}: {earlier}{after or 'empty'}")
    for name, value in sorted(found.kept.items()):
        typer.echo(f"  kept      {name}: {value}, which dynatick.toml does not name")
    for one in found.changes:
        note = "  anew: the old one is deleted" if one.replacement else ""
        typer.echo(f"  {one.action.lower():<9} {one.resource:<32} {one.kind}{note}")
    if found.protects:
        typer.echo("  then      the table is protected against deletion, once all has been created")


def _confirmed(question: str, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CommandFailed(ExitCode.USAGE, f"{question} There is nobody to ask; --yes answers yes")
    return typer.confirm(question)


def _say(text: str) -> None:
    typer.echo(text, err=True)
