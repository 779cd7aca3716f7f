"""Run by `manage.py test` in the project of docs/how-to/django.md."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from io import StringIO
from unittest.mock import patch

from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings
from shop import more_tasks as tasks

import dynatick.cli.app
from dynatick import InvalidInput
from dynatick.django.backend import DynatickBackend
from dynatick.django.framework import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from dynatick.testing import VirtualInstallation

BACKEND = "dynatick.django.backend.DynatickBackend"
AT_ONCE = {"default": {"BACKEND": BACKEND, "OPTIONS": {"retry_policy": {"maximumRetryAttempts": 2}}}}


@override_settings(TASKS=AT_ONCE)
class BackendTest(TestCase):
    def setUp(self) -> None:
        self.dynatick = self.enterContext(VirtualInstallation("handlers"))

    def test_a_task_runs_as_soon_as_it_can(self) -> None:
        result = tasks.remind.enqueue(order=1)
        self.assertEqual((result.status, result.attempts, result.is_finished), (TaskResultStatus.READY, 0, False))
        with self.assertRaises(ValueError):
            _ = result.return_value
        self.dynatick.run_due()
        found = tasks.remind.get_result(result.id)
        self.assertEqual((found.status, found.attempts), (TaskResultStatus.SUCCESSFUL, 1))
        self.assertEqual(found.return_value, "order 1 is not paid yet")
        self.assertEqual((found.task, found.args, found.kwargs), (tasks.remind, [], {"order": 1}))
        self.assertLessEqual(found.enqueued_at, found.started_at)
        self.assertLessEqual(found.started_at, found.finished_at)
        self.assertEqual((found.errors, found.backend), ([], "default"))

    def test_run_after(self) -> None:
        result = tasks.remind.using(run_after=self.dynatick.now + timedelta(days=40)).enqueue(1)
        self.dynatick.advance(days=39)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.dynatick.advance(days=1)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)

    def test_run_after_without_a_zone_is_refused_as_django_does(self) -> None:
        with self.assertRaisesRegex(Exception, "run_after must be an aware datetime"):
            tasks.remind.using(run_after=datetime(2035, 1, 1))  # noqa: DTZ001

    @override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin")
    def test_run_after_without_use_tz_is_of_the_default_time_zone(self) -> None:
        result = tasks.remind.using(run_after=datetime(2035, 7, 1, 12)).enqueue(1)  # noqa: DTZ001
        self.assertEqual(self.dynatick.task(result.id).due_at, datetime(2035, 7, 1, 10, tzinfo=UTC))

    def test_coroutines_are_enqueued_and_run(self) -> None:
        async def enqueue() -> object:
            return await tasks.double.aenqueue(21)

        result = asyncio.run(enqueue())
        self.dynatick.run_due()
        asyncio.run(result.arefresh())
        self.assertEqual(result.return_value, {"double": 42})
        self.assertEqual(asyncio.run(tasks.double.aget_result(result.id)).return_value, {"double": 42})

    async def test_an_async_test_moves_the_clock_in_a_thread(self) -> None:
        result = await tasks.double.aenqueue(21)
        await sync_to_async(self.dynatick.run_due)()
        await result.arefresh()
        self.assertEqual(result.return_value, {"double": 42})

    def test_a_task_that_fails_is_tried_again_and_says_what_it_raised(self) -> None:
        result = tasks.fail.enqueue("ada: away")
        self.dynatick.run_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.READY, 1))
        self.assertIs(result.errors[0].exception_class, tasks.NoMailbox)
        with self.assertLogs(level="ERROR") as logs:
            self.dynatick.advance(hours=1)
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 3))
        self.assertEqual([one.exception_class for one in result.errors], [tasks.NoMailbox] * 3)
        self.assertIn("ada: away", result.errors[0].traceback)
        self.assertIn("in fail: raise NoMailbox(text)", result.errors[-1].traceback)
        with self.assertRaisesRegex(ValueError, "failed"):
            _ = result.return_value
        self.assertIn("raise NoMailbox(text)", "\n".join(logs.output))

    def test_an_error_without_a_text_has_its_class(self) -> None:
        result = tasks.fail.enqueue("")
        self.dynatick.run_due()
        result.refresh()
        self.assertIs(result.errors[0].exception_class, tasks.NoMailbox)

    def test_a_permanent_error_fails_at_once(self) -> None:
        result = tasks.refuse.enqueue()
        self.dynatick.run_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 1))
        self.assertIn("no such order", result.errors[0].traceback)
        self.assertEqual(result.errors[0].exception_class.__name__, "PermanentError")

    def test_a_task_may_ask_to_be_called_again(self) -> None:
        finished: list[object] = []
        self.listen(task_finished, finished)
        tasks.calls.clear()
        result = tasks.wait_once.enqueue()
        self.dynatick.advance(minutes=5)
        result.refresh()
        self.assertEqual((result.status, result.return_value, len(tasks.calls)), ("SUCCESSFUL", None, 2))
        self.assertEqual(finished, [result.id])

    def test_the_context_counts_attempts(self) -> None:
        result = tasks.attempts.enqueue(2)
        self.dynatick.advance(hours=1)
        result.refresh()
        self.assertEqual(result.return_value, [2, result.id])

    def test_a_cancelled_task_has_failed(self) -> None:
        result = tasks.remind.using(run_after=self.dynatick.now + timedelta(days=1)).enqueue(1)
        self.dynatick.client.cancel(result.id)
        result.refresh()
        self.assertEqual((result.status, result.errors[0].traceback), ("FAILED", "it was cancelled"))

    def test_what_is_no_result_of_ours_does_not_exist(self) -> None:
        self.dynatick.client.insert("other", action="log", payload={"text": "hello"})
        for task_id in ("none", "other", "", "x" * 3000):
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.remind.get_backend().get_result(task_id)
        result = tasks.refuse.enqueue()
        with self.assertRaisesRegex(Exception, "does not match"):
            tasks.remind.get_result(result.id)
        for task_id, payload in (("renamed", {"task": "shop.more_tasks.was_there"}), ("no-call", {"text": "hello"})):
            self.dynatick.insert_unchecked("django", payload, task_id=task_id)
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.remind.get_backend().get_result(task_id)

    def test_what_the_backend_has_not_is_refused_when_the_task_is_defined(self) -> None:
        with self.assertRaisesRegex(Exception, "does not support setting priority"):
            tasks.remind.using(priority=1)
        with self.assertRaisesRegex(Exception, "Queue 'mails' is not valid"):
            tasks.remind.using(queue_name="mails")
        with self.assertRaisesRegex(InvalidInput, "maximumRetryAttempts"):
            DynatickBackend("default", {"OPTIONS": {"retry_policy": {"maximumRetryAttempts": -1}}})

    def test_what_json_cannot_hold_is_refused_when_it_is_enqueued(self) -> None:
        with self.assertRaises(TypeError):
            tasks.remind.enqueue(object())
        self.assertEqual(self.dynatick.waiting, [])

    def test_a_path_that_leads_to_no_task_fails_and_calls_nothing(self) -> None:
        paths = ["shop.more_tasks.no_task", "shop.nothing", "os.getcwd"]
        for number, path in enumerate(paths):
            self.dynatick.client.insert(f"task-{number}", action="django", payload={"task": path})
        self.dynatick.run_due()
        errors = [self.dynatick.task(f"task-{number}").error for number in range(3)]
        self.assertEqual(
            [str(one).partition(":")[0] for one in errors], ["shop.more_tasks.no_task", "shop.nothing", "os.getcwd"]
        )
        self.assertEqual([one.outcome for one in self.dynatick.executed], ["failed"] * 3)

    def test_the_signals_of_django(self) -> None:
        seen: dict[str, list[object]] = {"enqueued": [], "started": [], "finished": []}
        self.listen(task_enqueued, seen["enqueued"])
        self.listen(task_started, seen["started"])
        self.listen(task_finished, seen["finished"])
        result = tasks.remind.enqueue(1)
        self.assertEqual(seen, {"enqueued": [result.id], "started": [], "finished": []})
        self.dynatick.run_due()
        self.assertEqual(seen, {name: [result.id] for name in seen})

    def listen(self, signal: object, seen: list[object]) -> None:
        def receive(sender: type, task_result: object, **_: object) -> None:
            self.assertIs(sender, DynatickBackend)
            seen.append(task_result.id)

        signal.connect(receive)
        self.addCleanup(signal.disconnect, receive)


class OnCommitTest(TransactionTestCase):
    """With the option of the page's settings."""

    def setUp(self) -> None:
        self.dynatick = self.enterContext(VirtualInstallation("handlers"))

    def test_a_task_is_inserted_with_the_commit(self) -> None:
        with transaction.atomic():
            result = tasks.remind.enqueue(1)
            self.assertEqual(self.dynatick.waiting, [])
        self.assertEqual([one.task_id for one in self.dynatick.waiting], [result.id])

    def test_a_task_of_a_transaction_that_is_rolled_back_is_never_inserted(self) -> None:
        with self.assertRaises(KeyError), transaction.atomic():
            tasks.remind.enqueue(1)
            raise KeyError
        self.assertEqual(self.dynatick.waiting, [])

    def test_without_a_transaction_it_is_inserted_at_once(self) -> None:
        tasks.remind.enqueue(1)
        self.assertEqual(len(self.dynatick.waiting), 1)


class OnCommitOfAnotherDatabaseTest(TransactionTestCase):
    databases = frozenset({"default", "other"})

    @override_settings(TASKS={"default": {"BACKEND": BACKEND, "OPTIONS": {"on_commit": "other"}}})
    def test_a_task_is_inserted_with_the_commit_of_the_database_that_the_option_names(self) -> None:
        with VirtualInstallation("handlers") as dynatick, transaction.atomic():
            with transaction.atomic(using="other"):
                tasks.remind.enqueue(1)
                self.assertEqual(dynatick.waiting, [])
            self.assertEqual(len(dynatick.waiting), 1)


class CommandTest(TestCase):
    def test_call_command_runs_it_and_says_how_it_ended(self) -> None:
        calls: list[object] = []
        with patch.object(dynatick.cli.app, "invoke", lambda given: calls.append(given) or 0):
            call_command("dynatick", "ui", stdout=StringIO())
        with patch.object(dynatick.cli.app, "invoke", lambda given: 4), self.assertRaises(SystemExit) as ended:
            call_command("dynatick", "task")
        self.assertEqual((calls, ended.exception.code), ([["ui"]], 4))
