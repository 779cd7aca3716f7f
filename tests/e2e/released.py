"""A project's stack on the emulator, deployed as `dynatick deploy` does it, for functions that run on this machine.

But for the layer, which is the local stack's: its libraries lie beside the emulator. Unpacking them anew takes 2 s of a
CPU for each process of a function, and an update ends all of them: on busy CPUs the emulator answers nothing meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3

from dynatick.client import TaskClient
from dynatick_stack import change_set, emulator, local, project, template
from dynatick_stack.artifact_bucket import ArtifactBucket
from dynatick_stack.build import build, libraries
from dynatick_stack.cloudformation import parameters_of
from dynatick_stack.emulator import Emulator
from dynatick_stack.packaging import Packages, Platform, build_packages
from dynatick_stack.project_files import select
from dynatick_stack.release import Release

PYTHON = "{}.{}".format(*sys.version_info)


def quietly(text: str) -> None:
    pass


class Released:
    """``name``: of the stack, the same as in the project's dynatick.toml. ``state_dir``: of the emulator."""

    def __init__(self, folder: Path, aws: Emulator, name: str, *, state_dir: Path) -> None:
        self._folder, self._aws = folder, aws
        emulator.provide(libraries(quietly), state_dir=state_dir)
        session = boto3.Session("test", "test", region_name="us-east-1")
        os.environ["AWS_ENDPOINT_URL"] = aws.endpoint
        try:
            self.release, self.bucket = Release(session, name, poll_seconds=0.2), ArtifactBucket(session)
        finally:
            del os.environ["AWS_ENDPOINT_URL"]
        self.stack = self.release.stack
        if not self.bucket.exists():
            self.bucket.create()

    def deploy(self) -> None:
        """The project as it is now. Raises DeployError."""
        found = project.read(self._folder)
        change = self.release.prepare(found, self._packages(), self.bucket, say=quietly)
        assert change.arn is not None, "there is nothing to deploy"
        self.release.carry_out(change, say=quietly)

    def deploy_template(self, body: Mapping[str, Any], **parameters: str) -> None:
        """Another template, as a release that has it would; parameters that the stack has are kept."""
        for name, path in self._packages().of_template.items():
            template.set_code(body, name, self.bucket.upload(path, quietly))
        existing = change_set.deployed(self.stack)
        kept = (
            () if existing is None else parameters_of(existing).keys() & body["Parameters"].keys() - parameters.keys()
        )
        url = self.bucket.put(f"{self.stack.name}/another-template.json", json.dumps(body).encode())
        arn = change_set.make(self.stack, url, parameters, kept, is_new=existing is None)
        assert change_set.changes(self.stack, arn)
        change_set.carry_out(self.stack, arn, say=quietly)

    def layer_of_handlers(self) -> str:
        """Published; its ARN."""
        path, architecture = self._packages().handlers, local.architecture()
        return self.release._handlers_layer(path, self.bucket, architecture, publishes=True, say=quietly)

    def client(self) -> TaskClient:
        outputs = self.stack.outputs()
        return local.LocalStack(endpoint=self._aws.endpoint, name=self.stack.name, outputs=outputs).task_client()

    def _packages(self) -> Packages:
        # The emulator runs functions by this interpreter, on this machine.
        platform = Platform(architecture=local.architecture(), python=PYTHON)
        found = project.read(self._folder)
        return replace(build_packages(found, select(found).files, platform, say=quietly), of_template=build())
