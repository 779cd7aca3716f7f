"""A project that runs on this machine: started, shown, and deployed anew when its files change."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dynatick.cli.schedule_sync import what
from dynatick.client import SyncResult, TaskClient
from dynatick.client.views import TaskView
from dynatick.errors import InvalidInput
from dynatick.ui.loopback import PORT as DASHBOARD_PORT
from dynatick.ui.server import serve_beside
from dynatick.ui.site import Site
from dynatick_stack import declared_schedules, emulator, local
from dynatick_stack.build import libraries
from dynatick_stack.dev import handlers, sources
from dynatick_stack.dev.display import Display
from dynatick_stack.dev.handlers import Checked, HandlersError
from dynatick_stack.dev.insertions import InsertionReader
from dynatick_stack.dev.sources import Saves
from dynatick_stack.errors import DeployError, RefusedError
from dynatick_stack.folders import PROJECT_FILE
from dynatick_stack.local import LocalStack
from dynatick_stack.logs import LogReader
from dynatick_stack.project import Project
from dynatick_stack.project_files import project_files
from dynatick_stack.venv import Say

DEFAULTS = {"Precision": "second"}  # a task begins at once; a project may choose otherwise
SHOWN_AT = {"LogLevel": "DEBUG"}  # attempts and tracebacks are logged at this level


@dataclass(kw_only=True)
class Session:
    project: Project
    root: Path  # of what is deployed
    state_dir: Path
    say: Say
    seconds_between: float = 0.3
    _settings: str = ""
    _required: Path | None = None
    _secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # of the handlers
    _layer: str = ""  # the ARN of the handlers in force
    _schedules: declared_schedules.Rows = ()  # that the project declares

    def start(self, port: int | None) -> None:
        """Starts the system with the project's handlers. Raises HandlersError for handlers that can't be imported."""
        began = time.monotonic()
        project = self.project
        self._secrets = handlers.local_secrets(project)
        self._saves, self._settings = Saves(sources.snapshot(project)), self._read_settings()
        found = self._check()
        self.stack = local.up(
            port,
            {**DEFAULTS, **SHOWN_AT, **project.template_parameters()},
            say=self.say,
            state_dir=self.state_dir,
            root=self.root,
            name=project.name,
            prepare=self._prepare,
        )
        self.client: TaskClient = self.stack.task_client()
        self.reader = LogReader(self.stack.endpoint, since=time.time(), stack=project.name)
        self.insertions = InsertionReader(self.stack)
        self.display = Display(folder=project.folder)
        parameters = self.stack.parameters
        minutes = parameters["TickMinutes"]
        tick = "every minute" if minutes == "1" else f"every {minutes} minutes"
        exactly = ", to the second" if parameters["Precision"] == "second" else ""
        self.say(
            f"{project.name} on {self.stack.endpoint} · table {self.stack.table} · tick {tick}{exactly} · "
            f"dashboard {self._serve_dashboard()}\n"
            f"Handlers: {', '.join(sorted(found.actions))}. Ready in {time.monotonic() - began:.0f} s; times are UTC. "
            "Ctrl-C ends it: what it holds is not kept"
        )
        self._sync_schedules()

    def _serve_dashboard(self) -> str:
        """Returns its address."""
        site = Site(client=self.stack.task_client(), clock=lambda: datetime.now(UTC), name=self.project.name)
        return serve_beside(site, DASHBOARD_PORT)

    def follow(self) -> None:
        """Shows what happened since the last call, and deploys what has changed."""
        lines = self.reader.read()
        rows = self.client.store.get_many(self.display.wanted(lines))
        tasks: Mapping[str, TaskView] = {task_id: TaskView.from_row(row) for task_id, row in rows.items()}
        # After the logs: of what has run already, the insertion is not missing.
        for text in self.display.show(lines, tasks, self.insertions.read()):
            self.say(text)
        if changed := self._saves.take(sources.snapshot(self.project)):
            self._deploy(", ".join(str(path.relative_to(self.project.folder)) for path in changed))
        settings = self._read_settings()
        if settings != self._settings:
            self._settings = settings
            self._note(f"{PROJECT_FILE} or the requirements changed: they count from the next start")

    def _deploy(self, names: str) -> None:
        """Deploys the files as they are now. Handlers that don't work leave those in force as they are."""
        began, earlier = time.monotonic(), self._layer
        try:
            self._check()
            self._layer = handlers.publish(self.stack, self.project, self._saves.taken)
            self.stack.redeploy(say=self.say, HandlersLayerArn=self._layer)
        except (HandlersError, RefusedError, FileNotFoundError) as error:  # a file may be gone already
            self._note(f"{names} changed: {error}\n          The version before goes on")
        except DeployError as error:
            self._layer = earlier
            self.stack.redeploy(say=self.say, HandlersLayerArn=earlier)
            self._note(f"{names} changed: {error}\n          The version before goes on")
        else:
            self._note(f"{names} changed: deployed in {time.monotonic() - began:.1f} s")
            self._sync_schedules()

    def _sync_schedules(self) -> None:
        """Makes the schedules those that the project declares, and says what was done."""
        try:
            changes = declared_schedules.sync(self.client, self._schedules, owner=self.project.name)
        except InvalidInput as error:
            reasons = "; ".join(map(str, (error, *error.others)))
            self._note(f"{reasons}\n          The schedules stay as they are")
            return
        for one in changes:
            if one.result != SyncResult.UNCHANGED:
                self._note(f"schedule   {what(one, is_done=True):<16} {one.schedule_id:<16} {one.reason}".rstrip())

    def _check(self) -> Checked:
        self._required = handlers.requirements(self.project, self.say)
        found = libraries(self.say, root=self.root)
        environment = {**self.project.environment, **self._secrets}
        checked = handlers.check(self.project, project_files(self.project), found, self._required, environment)
        self._schedules = declared_schedules.declared(self.project, checked)
        return checked

    def _prepare(self, stack: LocalStack) -> dict[str, str]:
        """Builds the layer of the handlers and what they import, before the first deployment."""
        if self._required is not None:
            emulator.provide(self._required, state_dir=self.state_dir, name=emulator.HANDLERS_LIBRARIES)
        self._layer = handlers.publish(stack, self.project, self._saves.taken)
        return {"HandlersLayerArn": self._layer, **handlers.store_secrets(stack, self.project, self._secrets)}

    def _note(self, text: str) -> None:
        self.say(f"{datetime.now(UTC):%H:%M:%S}  {text}")

    def _read_settings(self) -> str:
        paths = [self.project.folder / PROJECT_FILE, self.project.requirements]
        return "\0".join(path.read_text("utf-8", "replace") for path in paths if path is not None and path.exists())
